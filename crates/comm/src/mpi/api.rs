//! The few MPI calls that the transport makes, whatever the implementation's handles look like.
//!
//! MPI standardises C source, not binaries: a communicator is a pointer in Open MPI and an integer in MPICH. All calls
//! are the same otherwise, so there is one generic [`Table`] of function pointers over the type of a handle, and one
//! small file per implementation ([`super::openmpi`], [`super::mpich`]) with its constants. Behind the [`Api`] trait no
//! handle is visible any more.
//!
//! Only calls that return at once are used after the start; nothing here waits for another rank, except
//! [`Api::start`] and [`Api::finalize`].

use libloading::Library;
use std::{
    ffi::{c_char, c_int, c_void},
    ptr::null_mut,
};

/// MPI_SUCCESS, the same everywhere.
const SUCCESS: c_int = 0;

/// MPI_THREAD_SERIALIZED: several threads call, one at a time (a lock in `process` sees to that). Every build of every
/// implementation can do it, and it saves theirs the locks of MPI_THREAD_MULTIPLE.
const SERIALIZED: c_int = 2;

/// Room for texts: MPICH's MPI_MAX_LIBRARY_VERSION_STRING; error texts are shorter.
const TEXT_BYTES: usize = 8192;

/// Room for one MPI_Status: 24 bytes in Open MPI, 20 in MPICH. What is in it is asked of MPI_Get_count.
type Status = [u64; 8];

/// A call that MPI refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MpiError {
    pub(super) call: &'static str,
    pub(super) text: String,
}

/// This process's place in MPI_COMM_WORLD.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    pub(super) rank: usize,
    pub(super) size: usize,
}

/// An operation under way. Not to be asked about again once it is done.
#[derive(Debug)]
pub(super) struct Request(u64);

/// MPI as the transport uses it. One thread calls at a time.
pub(super) trait Api: Send {
    /// MPI_Init_thread, and a duplicate of MPI_COMM_WORLD for our messages, whose errors come back as values.
    fn start(&mut self) -> Result<World, MpiError>;

    /// MPI_Isend of bytes.
    ///
    /// # Safety
    /// `bytes` stays valid and unchanged for `length` bytes until the request is done, whatever happens.
    unsafe fn send(
        &self,
        bytes: *const u8,
        length: usize,
        to: usize,
        tag: c_int,
    ) -> Result<Request, MpiError>;

    /// MPI_Irecv of at most `capacity` bytes.
    ///
    /// # Safety
    /// `room` stays valid for `capacity` bytes, and nobody else touches it, until the request is done.
    unsafe fn receive(
        &self,
        room: *mut u8,
        capacity: usize,
        from: usize,
        tag: c_int,
    ) -> Result<Request, MpiError>;

    /// MPI_Test of a send.
    fn is_sent(&self, request: &mut Request) -> Result<bool, MpiError>;

    /// MPI_Test of a receive: the bytes it brought, once it is done.
    fn received(&self, request: &mut Request) -> Result<Option<usize>, MpiError>;

    /// MPI_Cancel of a receive. It is still to be asked about until it is done, one way or the other.
    fn cancel(&self, request: &Request);

    /// MPI_Finalize. Waits for the other ranks to do the same; no call may follow.
    fn finalize(&self);
}

/// An opaque MPI object as an implementation passes it around.
pub(super) trait Handle: Copy + Default + Send + 'static {
    fn to_word(self) -> u64;
    fn from_word(word: u64) -> Self;
}

/// The predefined objects that the calls need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants<H> {
    pub(super) comm_world: H,
    pub(super) byte: H,
    pub(super) errors_return: H,
}

/// Declares the functions with their symbols and C signatures; all return an error code.
macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)+) => {
        struct Functions<H> {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)+
        }

        impl<H: Handle> Functions<H> {
            /// # Safety
            /// The library is an MPI implementation whose handles are `H`.
            unsafe fn load(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the signatures are those of the MPI standard, for handles `H`.
                unsafe { Ok(Self { $($name: *library.get(concat!($symbol, "\0").as_bytes())?,)+ }) }
            }
        }
    };
}
functions! {
    initialized = "MPI_Initialized" (*mut c_int);
    init_thread = "MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    finalize = "MPI_Finalize" ();
    comm_dup = "MPI_Comm_dup" (H, *mut H);
    comm_set_errhandler = "MPI_Comm_set_errhandler" (H, H);
    comm_rank = "MPI_Comm_rank" (H, *mut c_int);
    comm_size = "MPI_Comm_size" (H, *mut c_int);
    isend = "MPI_Isend" (*const c_void, c_int, H, c_int, c_int, H, *mut H);
    irecv = "MPI_Irecv" (*mut c_void, c_int, H, c_int, c_int, H, *mut H);
    test = "MPI_Test" (*mut H, *mut c_int, *mut Status);
    get_count = "MPI_Get_count" (*const Status, H, *mut c_int);
    cancel = "MPI_Cancel" (*mut H);
    error_string = "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
}

/// One implementation's functions and constants, and our communicator.
pub(super) struct Table<H> {
    functions: Functions<H>,
    constants: Constants<H>,
    comm: H,
}

impl<H: Handle> Table<H> {
    /// # Safety
    /// `library` is an MPI implementation whose handles are `H`, and it is never unloaded.
    pub(super) unsafe fn load(library: &Library, constants: Constants<H>) -> Result<Self, libloading::Error> {
        // SAFETY: our own contract.
        let functions = unsafe { Functions::load(library)? };
        Ok(Self { functions, constants, comm: constants.comm_world })
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), MpiError> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: `text_of` gives room for any text.
        let text = text_of(|text, length| unsafe { (self.functions.error_string)(code, text, length) });
        Err(MpiError { call, text: text.unwrap_or_else(|| format!("error {code}")) })
    }

    fn init(&self) -> Result<(), MpiError> {
        let mpi = &self.functions;
        let refuse = |text: &str| Err(MpiError { call: "MPI_Init_thread", text: text.into() });
        // SAFETY: may be called at any time.
        if self.number("MPI_Initialized", |answer| unsafe { (mpi.initialized)(answer) })? != 0 {
            return refuse("this process uses MPI already, and a group cannot share it");
        }
        let (argc, argv) = (null_mut(), null_mut());
        // SAFETY: not initialised yet, as just asked; null stands for arguments that the caller keeps to itself.
        let init = |level| unsafe { (mpi.init_thread)(argc, argv, SERIALIZED, level) };
        if self.number("MPI_Init_thread", init)? < SERIALIZED as usize {
            return refuse("this MPI library is built for one thread only");
        }
        Ok(())
    }

    /// A communicator of our own over all ranks, which reports errors instead of ending the process.
    fn duplicate_world(&self) -> Result<H, MpiError> {
        let Self { functions: mpi, constants: Constants { comm_world, errors_return, .. }, .. } = self;
        let mut comm = H::default();
        // SAFETY: MPI has been started; `comm` outlives the call.
        self.check("MPI_Comm_dup", unsafe { (mpi.comm_dup)(*comm_world, &raw mut comm) })?;
        // Errors that belong to no communicator are reported where those of the world are.
        for comm in [*comm_world, comm] {
            // SAFETY: both are communicators, and the handler is a predefined one.
            let code = unsafe { (mpi.comm_set_errhandler)(comm, *errors_return) };
            self.check("MPI_Comm_set_errhandler", code)?;
        }
        Ok(comm)
    }

    /// Whether the operation is done.
    fn test(&self, request: &mut Request, status: &mut Status) -> Result<bool, MpiError> {
        let (mut handle, mut done) = (H::from_word(request.0), 0);
        // SAFETY: a request of ours that is not done yet (see `Request`), and results that outlive the call. MPI keeps
        // no pointer to them.
        let code = unsafe { (self.functions.test)(&raw mut handle, &raw mut done, status) };
        request.0 = handle.to_word();
        self.check("MPI_Test", code)?;
        Ok(done != 0)
    }

    /// One of the calls that ask for a number.
    fn number(&self, call: &'static str, ask: impl FnOnce(*mut c_int) -> c_int) -> Result<usize, MpiError> {
        let mut answer = -1;
        self.check(call, ask(&raw mut answer))?;
        usize::try_from(answer).map_err(|_| MpiError { call, text: format!("it answered {answer}") })
    }
}

impl<H: Handle> Api for Table<H> {
    fn start(&mut self) -> Result<World, MpiError> {
        self.init()?;
        self.comm = self.duplicate_world()?;
        let (mpi, comm) = (&self.functions, self.comm);
        // SAFETY: MPI has been started, and `comm` is a communicator of it.
        let rank = self.number("MPI_Comm_rank", |answer| unsafe { (mpi.comm_rank)(comm, answer) })?;
        // SAFETY: as above.
        let size = self.number("MPI_Comm_size", |answer| unsafe { (mpi.comm_size)(comm, answer) })?;
        Ok(World { rank, size })
    }

    unsafe fn send(
        &self,
        bytes: *const u8,
        length: usize,
        to: usize,
        tag: c_int,
    ) -> Result<Request, MpiError> {
        let mut handle = H::default();
        let (length, to) = (length as c_int, to as c_int);
        // SAFETY: our own contract for the bytes; `handle` outlives the call; lengths and ranks are small constants.
        let code = unsafe {
            let byte = self.constants.byte;
            (self.functions.isend)(bytes.cast(), length, byte, to, tag, self.comm, &raw mut handle)
        };
        self.check("MPI_Isend", code)?;
        Ok(Request(handle.to_word()))
    }

    unsafe fn receive(
        &self,
        room: *mut u8,
        capacity: usize,
        from: usize,
        tag: c_int,
    ) -> Result<Request, MpiError> {
        let mut handle = H::default();
        let (capacity, from) = (capacity as c_int, from as c_int);
        // SAFETY: as in `send`.
        let code = unsafe {
            let byte = self.constants.byte;
            (self.functions.irecv)(room.cast(), capacity, byte, from, tag, self.comm, &raw mut handle)
        };
        self.check("MPI_Irecv", code)?;
        Ok(Request(handle.to_word()))
    }

    fn is_sent(&self, request: &mut Request) -> Result<bool, MpiError> {
        self.test(request, &mut Status::default())
    }

    fn received(&self, request: &mut Request) -> Result<Option<usize>, MpiError> {
        let mut status = Status::default();
        if !self.test(request, &mut status)? {
            return Ok(None);
        }
        // SAFETY: a status that MPI_Test has just filled for a receive of bytes.
        let ask =
            |count| unsafe { (self.functions.get_count)(&raw const status, self.constants.byte, count) };
        self.number("MPI_Get_count", ask).map(Some)
    }

    fn cancel(&self, request: &Request) {
        let mut handle = H::from_word(request.0);
        // SAFETY: a request of ours that is not done yet. When it cannot be cancelled it stays pending, which the caller
        // finds out by asking about it.
        unsafe { (self.functions.cancel)(&raw mut handle) };
    }

    fn finalize(&self) {
        // SAFETY: `process` makes no call after this one. There is nobody left to tell about a failure.
        unsafe { (self.functions.finalize)() };
    }
}

/// Lets a call fill in a text; `None` when it fails.
pub(super) fn text_of(fill: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Option<String> {
    let mut text = vec![0_u8; TEXT_BYTES];
    let mut length = 0;
    let code = fill(text.as_mut_ptr().cast(), &raw mut length);
    let length = usize::try_from(length).ok().filter(|length| code == SUCCESS && *length <= TEXT_BYTES)?;
    let text = String::from_utf8_lossy(&text[..length]);
    Some(text.trim_end_matches(['\0', '\n', ' ']).to_owned())
}
