//! Chat templates: messages to the prompt text a model was trained on.
//!
//! A template is a Jinja program that comes with the model. The reference is what the
//! `transformers` library renders; minijinja runs it here, with what it lacks of Python added:
//! functions and filters in `python`, lists that can grow in `lists`, dates in `clock`.
//!
//! # Hostile templates
//!
//! A template comes from whoever published the model. What one render may do is bounded:
//!
//! - time and memory by fuel (about one unit per instruction and per 64 bytes made), which grows
//!   with the size of the messages, and by a limit on the output;
//! - the depth of the program by limits on its text (`rewrite`);
//! - the depth of values by limits on the messages, and by storing only copies in namespaces
//!   (`lists`), without which a value could come to hold itself;
//! - what depth remains fits the stack of a thread of its own, 64 MiB of address space of which
//!   only what is used is ever real memory.

mod clock;
mod lists;
mod prepare;
mod python;
mod rewrite;

use std::io;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value};

pub use clock::Clock;
pub use prepare::Nulls;

/// Stack of the thread that compiles or renders, in bytes. See the module's page.
const STACK_BYTES: usize = 64 << 20;
/// Fuel of a render, and what each byte of messages adds. Published templates burn about 300 units
/// per message and pass over each text a few times.
const BASE_FUEL: u64 = 1_000_000;
const FUEL_PER_BYTE: u64 = 8;
/// Longest output in bytes, and what each byte of messages adds.
const BASE_OUTPUT: usize = 1 << 20;
const OUTPUT_PER_BYTE: usize = 8;
/// How deep macros, recursive loops and blocks may nest.
const RECURSION_LIMIT: usize = 100;
/// The name under which the one template is kept.
const NAME: &str = "chat_template";

/// Why a template could not be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template's text is not a template that can be run.
    #[error("the chat template is not usable: {0}")]
    Syntax(String),
    /// The template itself refuses the messages, by calling `raise_exception`: the request is to
    /// be answered with this text.
    #[error("the chat template refuses these messages: {0}")]
    Raised(String),
    /// The template failed on these messages, most often because it expects a field or a type
    /// that they lack.
    #[error("the chat template failed on these messages: {0}")]
    Failed(String),
    /// The template or the messages are beyond a limit.
    #[error("the chat template went beyond a limit: {0}")]
    Limit(String),
}

/// What to render. Everything is borrowed; start from [`Render::new`].
#[derive(Clone, Copy, Debug)]
pub struct Render<'a> {
    /// The conversation: objects with `role` and `content`, and what else the template reads.
    pub messages: &'a [Value],
    /// Tools the model may call, in OpenAI's form.
    pub tools: Option<&'a [Value]>,
    /// End the prompt where the model is to begin its answer.
    pub add_generation_prompt: bool,
    /// Text of the token that begins a text; left undefined if `None`.
    pub bos_token: Option<&'a str>,
    /// Text of the token that ends a text; left undefined if `None`.
    pub eos_token: Option<&'a str>,
    /// Further variables, such as `enable_thinking`. They replace variables of the same name.
    pub kwargs: Option<&'a Map<String, Value>>,
    /// What becomes of a message's keys whose value is null.
    pub nulls: Nulls,
}

impl<'a> Render<'a> {
    /// A prompt for an answer to `messages`, without tools.
    #[must_use]
    pub fn new(messages: &'a [Value]) -> Self {
        Render {
            messages,
            tools: None,
            add_generation_prompt: true,
            bos_token: None,
            eos_token: None,
            kwargs: None,
            nulls: Nulls::default(),
        }
    }
}

/// A compiled chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
}

impl ChatTemplate {
    /// Compiles a template that reads the real clock (UTC) where it asks for the date.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Syntax`] when it is no template, [`TemplateError::Limit`] when its text is
    /// longer, or its expressions larger, than any sound template's.
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        Self::with_clock(source, clock::system())
    }

    /// As [`new`](Self::new), with the clock given.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn with_clock(source: &str, clock: Clock) -> Result<Self, TemplateError> {
        let runnable = rewrite::runnable(source)?;
        let environment = on_large_stack(|| {
            let mut environment = environment(clock)?;
            environment
                .add_template_owned(NAME, runnable)
                .map_err(|e| TemplateError::Syntax(describe(&e)))?;
            Ok(environment)
        })?;
        Ok(ChatTemplate { environment, source: source.to_owned() })
    }

    /// The template as it was given.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt text. Takes time in proportion to the messages and the template's own loops,
    /// and a thread for its duration.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Raised`] when the template refuses the messages,
    /// [`TemplateError::Failed`] when it cannot cope with them, and [`TemplateError::Limit`] when
    /// it works for too long, makes too much text, or the messages nest too deep.
    pub fn render(&self, request: &Render<'_>) -> Result<String, TemplateError> {
        let size = prepare::measure(request)?;
        on_large_stack(|| self.render_here(request, size))
    }

    fn render_here(&self, request: &Render<'_>, size: usize) -> Result<String, TemplateError> {
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(BASE_FUEL.saturating_add(FUEL_PER_BYTE.saturating_mul(size as u64))));
        let template = environment.get_template(NAME).map_err(|e| TemplateError::Failed(describe(&e)))?;
        let limit = BASE_OUTPUT.saturating_add(OUTPUT_PER_BYTE.saturating_mul(size));
        let mut output = Bounded { bytes: Vec::new(), limit };
        let rendered = template.render_captured_to(prepare::context(request), &mut output).map(drop);
        rendered.map_err(|error| classify(&error, limit))?;
        String::from_utf8(output.bytes).map_err(|e| TemplateError::Failed(e.to_string()))
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}

/// The settings of `transformers`, and Python's functions.
fn environment(clock: Clock) -> Result<Environment<'static>, TemplateError> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    let mut environment = Environment::new();
    environment.set_syntax(syntax.map_err(|e| TemplateError::Syntax(describe(&e)))?);
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_fuel(Some(BASE_FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    python::install(&mut environment);
    lists::install(&mut environment);
    environment.add_function("strftime_now", move |format: &str| clock::strftime(&clock, format));
    Ok(environment)
}

fn classify(error: &minijinja::Error, limit: usize) -> TemplateError {
    if let Some(message) = python::raised_message(error) {
        return TemplateError::Raised(message);
    }
    match error.kind() {
        ErrorKind::OutOfFuel => {
            TemplateError::Limit("it works for too long or makes too much text".to_owned())
        }
        ErrorKind::WriteFailure => TemplateError::Limit(format!("its output is longer than {limit} bytes")),
        _ => TemplateError::Failed(describe(error)),
    }
}

fn describe(error: &minijinja::Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{detail} (line {line})"),
        None => detail,
    }
}

/// Output that ends with an error at a limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + buf.len() > self.limit {
            return Err(io::Error::other("output limit"));
        }
        self.bytes.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `work` on a thread whose stack is known to suffice: minijinja recurses once per level of
/// an expression when compiling, and of a value when printing or freeing it.
fn on_large_stack<T: Send>(
    work: impl FnOnce() -> Result<T, TemplateError> + Send,
) -> Result<T, TemplateError> {
    let failed = |what: &str| TemplateError::Failed(what.to_owned());
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("chat-template".to_owned()).stack_size(STACK_BYTES);
        let thread =
            builder.spawn_scoped(scope, work).map_err(|e| failed(&format!("no thread to run it: {e}")))?;
        thread.join().unwrap_or_else(|_| Err(failed("the template engine gave up on it")))
    })
}

/// Shorthand for the errors that the functions given to templates return.
fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> minijinja::Error {
    minijinja::Error::new(ErrorKind::InvalidOperation, message)
}

type SharedClock = Arc<dyn Fn() -> std::time::SystemTime + Send + Sync>;
