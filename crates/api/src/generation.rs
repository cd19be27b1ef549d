//! Events of the instance to pieces of text: detokenizer, stop strings, log-probabilities.

use crate::{ApiError, Served, params::Params};
use pomar_engine::sampler::LogProbs;
use pomar_runtime::{FinishReason, Request, RequestEvent, Ticket, Want};
use pomar_text::{StopStrings, StreamDecoder, StreamOptions};
use std::sync::Arc;
use tokio::sync::mpsc;

/// A part of an answer that no later token can change.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Piece {
    /// Text; empty at most in the last piece.
    pub(crate) text: String,
    /// Of the tokens that the text came from, when asked for.
    pub(crate) logprobs: Vec<TokenLogProbs>,
    /// Set in the last piece.
    pub(crate) finish: Option<FinishReason>,
}

/// One token's log-probability and those of its alternatives, with the bytes that the tokens stand for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenLogProbs {
    pub(crate) text: Vec<u8>,
    pub(crate) logprob: f32,
    pub(crate) top: Vec<(Vec<u8>, f32)>,
}

/// An answer on its way. Dropping it frees its place in the batch.
pub(crate) struct Generation {
    served: Served,
    ticket: Option<Ticket>,
    /// As long as the answer may get, so it is bounded, and the instance never waits for a slow reader.
    events: mpsc::UnboundedReceiver<RequestEvent>,
    decoder: StreamDecoder,
    stops: StopStrings,
    /// Of tokens whose text is still held back.
    held: Vec<TokenLogProbs>,
    prompt_tokens: usize,
    answer_tokens: usize,
}

impl Generation {
    /// Submits a prompt. `from_start`: the answer is a text of its own, not the continuation of the prompt's.
    pub(crate) fn start(
        served: Served,
        prompt: Vec<u32>,
        params: &Params,
        from_start: bool,
    ) -> Result<Self, ApiError> {
        let room = served.context.saturating_sub(prompt.len());
        if room == 0 {
            let (tokens, context) = (prompt.len(), served.context);
            return Err(ApiError::invalid(format!(
                "the prompt's {tokens} tokens fill the context of {context}: shorten it"
            )));
        }
        let prompt_tokens = prompt.len();
        let request = Request {
            id: 0,
            prompt,
            max_tokens: params.max_tokens.unwrap_or(room),
            stop_tokens: served.text.end_tokens().iter().copied().collect(),
            sampling: params.sampling.clone(),
            logprobs: params.logprobs,
            want: Want::Tokens,
            chunk: None,
        };
        let stops =
            StopStrings::new(&params.stop).map_err(|error| ApiError::field("stop", error.to_string()))?;
        let decoder = served.text.tokenizer().stream(StreamOptions { skip_special: true, from_start });
        let (sender, events) = mpsc::unbounded_channel();
        let ticket = Some(served.instance.submit(request, move |event| drop(sender.send(event))));
        Ok(Self { served, ticket, events, decoder, stops, held: Vec::new(), prompt_tokens, answer_tokens: 0 })
    }

    /// Tokens of the prompt, and of the answer so far.
    pub(crate) fn tokens(&self) -> (usize, usize) {
        (self.prompt_tokens, self.answer_tokens)
    }

    /// The next piece; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<Result<Piece, ApiError>> {
        while self.ticket.is_some() {
            let Some(event) = self.events.recv().await else {
                return Some(Err(self.end_with(&RequestEvent::Failed("the model was stopped".into()))));
            };
            match event {
                RequestEvent::Token { token, logprobs } => {
                    if let Some(piece) = self.take_token(token, logprobs) {
                        return Some(Ok(piece));
                    }
                }
                RequestEvent::Finished(reason) => return Some(Ok(self.last_piece(reason))),
                event if event.failure().is_some() => return Some(Err(self.end_with(&event))),
                _ => {}
            }
        }
        None
    }

    /// The whole answer at once.
    pub(crate) async fn collect(&mut self) -> Result<Piece, ApiError> {
        let mut answer = Piece::default();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            answer.text.push_str(&piece.text);
            answer.logprobs.extend(piece.logprobs);
            answer.finish = piece.finish;
        }
        Ok(answer)
    }

    fn take_token(&mut self, token: u32, logprobs: Option<LogProbs>) -> Option<Piece> {
        self.answer_tokens += 1;
        let entry = logprobs.map(|logprobs| self.spell(token, logprobs));
        self.held.extend(entry);
        let certain = self.decoder.push(token);
        let stopped = self.stops.push(&certain);
        if stopped.matched.is_some() {
            // Cancels what the model would go on to say. The tokens of the stop string are not shown.
            self.ticket = None;
            self.held.clear();
            return Some(Piece {
                text: stopped.text,
                logprobs: Vec::new(),
                finish: Some(FinishReason::Stop),
            });
        }
        if stopped.text.is_empty() {
            return None;
        }
        Some(Piece { text: stopped.text, logprobs: std::mem::take(&mut self.held), finish: None })
    }

    fn last_piece(&mut self, reason: FinishReason) -> Piece {
        self.ticket = None;
        let rest = self.decoder.finish();
        let stopped = self.stops.push(&rest);
        let mut text = stopped.text;
        if stopped.matched.is_some() {
            self.held.clear();
        } else {
            text.push_str(&self.stops.finish());
        }
        Piece { text, logprobs: std::mem::take(&mut self.held), finish: Some(reason) }
    }

    fn end_with(&mut self, event: &RequestEvent) -> ApiError {
        self.ticket = None;
        ApiError::from_event(event).unwrap_or_else(|| ApiError::invalid("the request ended early"))
    }

    fn spell(&self, token: u32, logprobs: LogProbs) -> TokenLogProbs {
        let tokenizer = Arc::clone(self.served.text.tokenizer());
        let bytes = |id| tokenizer.token_bytes(id).to_vec();
        TokenLogProbs {
            text: bytes(token),
            logprob: finite(logprobs.chosen),
            top: logprobs.top.into_iter().map(|(id, logprob)| (bytes(id), finite(logprob))).collect(),
        }
    }
}

/// JSON has no infinity; OpenAI sends -9999 for tokens that can't come.
fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}
