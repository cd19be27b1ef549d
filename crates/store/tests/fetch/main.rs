//! Fetching from a hub on loopback: all that servers, networks and `kill -9` can do to a download.

mod hub;
mod kill;
mod support;
