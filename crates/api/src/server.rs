//! Connections, and the limits on them.

use crate::{Served, router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore};

/// Most connections at a time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// A request's headers must have arrived within this time; so must the next request of a connection that is kept open.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest headers.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Serves a model until `shutdown` ends. Streams that still run are cut off with it.
///
/// # Errors
/// When the listener's address is not a loopback address: requests carry no key yet, so nobody else may reach them.
pub async fn serve(
    listener: TcpListener,
    served: Served,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    check_loopback(address)?;
    let service = TowerToHyperService::new(router(served));
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accept = async {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((place, listener.accept().await?.0))
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            () = &mut shutdown => return Ok(()),
        };
        let (place, connection) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, or a client that left at once: the next one may do better.
                tracing::warn!("a connection was not accepted: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let service = service.clone();
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(MAX_HEADER_BYTES)
                .serve_connection(TokioIo::new(connection), service);
            if let Err(error) = served.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(place);
        });
    }
}

/// Checks that only this machine can reach an address.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] when others can: requests carry no key yet.
pub fn check_loopback(address: SocketAddr) -> io::Result<()> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let message = format!("{address} can be reached from other machines; listen on 127.0.0.1 or [::1]");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}
