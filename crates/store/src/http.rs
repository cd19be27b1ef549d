//! GET over HTTP with the manners that a downloader needs: bounded redirects, a token that stays at home, and
//! failures sorted into those worth another try and those that aren't.

use std::io::Read;
use std::thread;
use std::time::Duration;

use ureq::http::header::{AUTHORIZATION, HeaderMap, LOCATION, RETRY_AFTER};
use ureq::http::uri::Scheme;
use ureq::http::{HeaderName, Uri};
use ureq::{Agent, BodyReader};

use crate::error::StoreError;
use crate::settings::{Limits, Settings};

/// Longest head of an answer, in bytes.
const MAX_HEAD: usize = 64 * 1024;

/// An HTTP client for one hub.
pub(crate) struct Client {
    agent: Agent,
    endpoint: Uri,
    token: Option<String>,
    limits: Limits,
}

/// The final answer to a GET, redirects followed.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: BodyReader<'static>,
}

/// Why one attempt failed.
pub(crate) enum Failure {
    /// Worth another try. `wait` is what the server asked for; `useful` says that this attempt got so far
    /// that earlier failures no longer count.
    Temporary { why: String, wait: Option<Duration>, useful: bool },
    /// Not worth another try.
    Final(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Final(error)
    }
}

impl Failure {
    pub(crate) fn temporary(why: impl ToString) -> Self {
        Failure::Temporary { why: why.to_string(), wait: None, useful: false }
    }
}

impl Client {
    /// A client for the hub of `settings`. Opens no connection yet.
    pub(crate) fn new(settings: &Settings) -> Result<Self, StoreError> {
        let bad = || StoreError::BadEndpoint { endpoint: settings.endpoint.clone() };
        let endpoint: Uri = settings.endpoint.trim_end_matches('/').parse().map_err(|_| bad())?;
        if !is_usable(&endpoint) || endpoint.query().is_some() {
            return Err(bad());
        }
        let limits = settings.limits;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_response_header_size(MAX_HEAD)
            .user_agent(concat!("pomar/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(limits.connect))
            .timeout_connect(Some(limits.connect))
            .timeout_send_request(Some(limits.stall))
            .timeout_recv_response(Some(limits.stall))
            .timeout_per_read(Some(limits.stall))
            .timeout_per_write(Some(limits.stall));
        if is_loopback(&endpoint) {
            config = config.proxy(None);
        }
        let agent = Agent::new_with_config(config.build());
        Ok(Client { agent, endpoint, token: settings.token.clone(), limits })
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The address of `path` (already percent-encoded, with a leading `/`) at the hub.
    pub(crate) fn at_hub(&self, path: &str) -> Result<Uri, StoreError> {
        let base = self.endpoint.to_string();
        let text = format!("{}{path}", base.trim_end_matches('/'));
        text.parse().map_err(|_| StoreError::BadEndpoint { endpoint: base })
    }

    /// One GET, redirects followed. Answers with 200, 206 and 416 come back; everything else is a failure.
    pub(crate) fn get(&self, url: &Uri, headers: &[(HeaderName, String)]) -> Result<Answer, Failure> {
        let mut at = url.clone();
        for _ in 0..=self.limits.redirects {
            let answer = self.get_once(&at, headers)?;
            match answer.status {
                200 | 206 | 416 => return Ok(answer),
                301 | 302 | 303 | 307 | 308 => at = redirect_target(&at, &answer.headers)?,
                status => return Err(status_failure(&at, status, &answer.headers)),
            }
        }
        let why = format!("more than {} in a row", self.limits.redirects);
        Err(Failure::Final(StoreError::Redirect { url: shown(url), why }))
    }

    /// A small answer as a whole, tried as often as the limits say.
    pub(crate) fn get_small(&self, url: &Uri, max: u64) -> Result<(HeaderMap, Vec<u8>), StoreError> {
        self.with_retries(url, || {
            let answer = self.get(url, &[])?;
            if answer.status != 200 {
                return Err(StoreError::Status { url: shown(url), status: answer.status }.into());
            }
            let mut body = Vec::new();
            let mut limited = answer.body.take(max.saturating_add(1));
            limited.read_to_end(&mut body).map_err(Failure::temporary)?;
            if body.len() as u64 > max {
                let why = format!("longer than {max} bytes");
                return Err(StoreError::BadAnswer { url: shown(url), why }.into());
            }
            Ok((answer.headers, body))
        })
    }

    /// Runs `attempt` until it succeeds, fails for good, or has failed too often in a row.
    pub(crate) fn with_retries<T>(
        &self,
        url: &Uri,
        mut attempt: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let (mut attempts, mut in_a_row) = (0u32, 0u32);
        loop {
            let (why, asked, useful) = match attempt() {
                Ok(done) => return Ok(done),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Temporary { why, wait, useful }) => (why, wait, useful),
            };
            attempts += 1;
            in_a_row = if useful { 1 } else { in_a_row + 1 };
            if in_a_row >= self.limits.failures {
                return Err(StoreError::Network { url: shown(url), attempts, why });
            }
            thread::sleep(self.wait_after(in_a_row, asked));
        }
    }

    /// Doubling waits from the second failure on; a server that asks for more gets it, up to the limit.
    fn wait_after(&self, failures: u32, asked: Option<Duration>) -> Duration {
        let doubled = self.limits.first_wait.saturating_mul(1 << failures.saturating_sub(1).min(16));
        asked.unwrap_or_default().max(doubled).min(self.limits.longest_wait)
    }

    fn get_once(&self, url: &Uri, headers: &[(HeaderName, String)]) -> Result<Answer, Failure> {
        let mut request = self.agent.get(url).header("accept-encoding", "identity");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(token) = self.token_for(url) {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let response = request.call().map_err(|e| call_failure(url, e))?;
        let (head, body) = response.into_parts();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: body.into_reader() })
    }

    /// The token goes to the hub's own scheme, host and port, and never in the clear over a network.
    fn token_for(&self, url: &Uri) -> Option<&str> {
        let private = url.scheme() == Some(&Scheme::HTTPS) || is_loopback(url);
        let token = self.token.as_deref()?;
        (private && same_origin(url, &self.endpoint)).then_some(token)
    }
}

/// An address for messages: no query, since that may hold a signature.
pub(crate) fn shown(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or_default();
    let host = url.authority().map_or("", |a| a.as_str());
    format!("{scheme}://{host}{}", url.path())
}

/// A header as text.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Where a `Location` or `Link` leads from `base` (RFC 3986 section 5.2, without removing dot segments).
pub(crate) fn join(base: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let text = if has_scheme(location) {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.starts_with('?') {
        format!("{scheme}://{authority}{}{location}", base.path())
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    text.parse().ok().filter(is_usable)
}

fn has_scheme(location: &str) -> bool {
    let path = location.find(['/', '?']).unwrap_or(location.len());
    location[..path].contains(':')
}

fn redirect_target(from: &Uri, headers: &HeaderMap) -> Result<Uri, Failure> {
    let refuse = |why: &str| Failure::Final(StoreError::Redirect { url: shown(from), why: why.to_owned() });
    let location = header(headers, &LOCATION).ok_or_else(|| refuse("it doesn't say where to"))?;
    let to = join(from, location).ok_or_else(|| refuse("it leads to no http:// or https:// address"))?;
    if from.scheme() == Some(&Scheme::HTTPS) && to.scheme() != Some(&Scheme::HTTPS) {
        return Err(refuse("it leads from https:// to http://"));
    }
    Ok(to)
}

fn status_failure(url: &Uri, status: u16, headers: &HeaderMap) -> Failure {
    let worth_a_retry = matches!(status, 408 | 425 | 429 | 500..=599);
    if !worth_a_retry {
        return Failure::Final(StoreError::Status { url: shown(url), status });
    }
    let seconds = header(headers, &RETRY_AFTER).and_then(|value| value.trim().parse().ok());
    let wait = seconds.map(Duration::from_secs);
    Failure::Temporary { why: format!("it answered {status}"), wait, useful: false }
}

fn call_failure(url: &Uri, error: ureq::Error) -> Failure {
    match error {
        ureq::Error::Rustls(_) | ureq::Error::Tls(_) | ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            Failure::Final(StoreError::Network { url: shown(url), attempts: 1, why: error.to_string() })
        }
        other => Failure::temporary(other),
    }
}

/// HTTP or HTTPS with a host and without a user name in it.
fn is_usable(url: &Uri) -> bool {
    let scheme = url.scheme() == Some(&Scheme::HTTP) || url.scheme() == Some(&Scheme::HTTPS);
    scheme && url.authority().is_some_and(|a| !a.host().is_empty() && !a.as_str().contains('@'))
}

fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn same_origin(a: &Uri, b: &Uri) -> bool {
    let port =
        |url: &Uri| url.port_u16().unwrap_or(if url.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 });
    let host = |url: &Uri| url.host().map(str::to_ascii_lowercase);
    a.scheme() == b.scheme() && host(a) == host(b) && port(a) == port(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().expect("an address")
    }

    fn client(endpoint: &str) -> Client {
        let settings =
            Settings { endpoint: endpoint.into(), token: Some("secret".into()), ..Settings::from_env() };
        Client::new(&settings).expect("a client")
    }

    #[test]
    fn locations_are_joined() {
        let base = uri("https://a.example:1/x/y?q=1");
        for (location, whole) in [
            ("https://b.example/z", "https://b.example/z"),
            ("//b.example/z", "https://b.example/z"),
            ("/z?p#f", "https://a.example:1/z?p"),
            ("z", "https://a.example:1/x/z"),
            ("?p=2", "https://a.example:1/x/y?p=2"),
        ] {
            assert_eq!(join(&base, location), Some(uri(whole)), "{location}");
        }
        for location in ["file:///etc/passwd", "ftp://a/b", "https://u@b.example/", "javascript:x"] {
            assert_eq!(join(&base, location), None, "{location}");
        }
    }

    #[test]
    fn the_token_stays_at_home_and_off_the_open_wire() {
        let hub = client("https://hub.example");
        assert!(hub.token_for(&uri("https://HUB.example:443/x")).is_some());
        for other in ["https://cdn.example/x", "http://hub.example/x", "https://hub.example:444/x"] {
            assert!(hub.token_for(&uri(other)).is_none(), "{other}");
        }
        assert!(client("http://hub.example").token_for(&uri("http://hub.example/x")).is_none());
        assert!(client("http://127.0.0.1:9").token_for(&uri("http://127.0.0.1:9/x")).is_some());
    }

    #[test]
    fn https_never_becomes_http() {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, "http://hub.example/x".parse().expect("a value"));
        assert!(redirect_target(&uri("https://hub.example/x"), &headers).is_err());
        assert!(redirect_target(&uri("http://hub.example/x"), &headers).is_ok());
    }

    #[test]
    fn waits_double_and_are_bounded() {
        let hub = client("https://hub.example");
        let limits = *hub.limits();
        assert_eq!(hub.wait_after(1, None), limits.first_wait);
        assert_eq!(hub.wait_after(3, None), limits.first_wait * 4);
        assert_eq!(hub.wait_after(1, Some(Duration::from_secs(7))), Duration::from_secs(7));
        assert_eq!(hub.wait_after(40, Some(Duration::from_secs(1 << 40))), limits.longest_wait);
    }

    #[test]
    fn endpoints_that_are_no_web_address_are_refused() {
        for endpoint in
            ["", "hub.example", "ftp://hub.example", "https://", "https://u:p@hub.example", "https://h/?q"]
        {
            let settings = Settings { endpoint: endpoint.into(), ..Settings::from_env() };
            assert!(Client::new(&settings).is_err(), "{endpoint:?}");
        }
    }
}
