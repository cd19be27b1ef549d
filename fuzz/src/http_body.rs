//! The body of a request to the HTTP API.

use pomar_api::{ApiError, Params, chat, completions};
use pomar_text::StopStrings;

/// `bytes` is a whole body. It is read as that of a chat completion and as that of a text completion.
///
/// # Panics
/// When a refusal is not the client's fault, or a request that can't be served was accepted.
pub fn http_body(bytes: &[u8]) {
    match chat::parse(bytes) {
        Ok(request) => {
            assert!(request.messages.iter().all(|message| message["role"].is_string()));
            check_params(&request.params);
        }
        Err(error) => check_refusal(&error),
    }
    match completions::parse(bytes) {
        Ok(request) => check_params(&request.params),
        Err(error) => check_refusal(&error),
    }
}

fn check_params(params: &Params) {
    let sampling = &params.sampling;
    let numbers = [
        sampling.temperature,
        sampling.top_p,
        sampling.min_p,
        sampling.repetition_penalty,
        sampling.presence_penalty,
        sampling.frequency_penalty,
    ];
    let biases = sampling.logit_bias.iter().map(|&(_, bias)| bias);
    assert!(numbers.into_iter().chain(biases).all(f32::is_finite), "{sampling:?}");
    assert_ne!(params.max_tokens, Some(0));
    assert!(StopStrings::new(&params.stop).is_ok());
}

fn check_refusal(error: &ApiError) {
    assert!(error.status.is_client_error(), "{error:?}");
    assert!(!error.message.is_empty());
}
