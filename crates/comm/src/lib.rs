//! A group of ranks and its transports: shared memory and a TCP mesh.
