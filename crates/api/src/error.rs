//! Errors in OpenAI's shape.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use pomar_runtime::RequestEvent;
use serde_json::{Value, json};

/// An answer that is not a success: a status, a sentence, and the field it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// What is wrong and what would be right.
    pub message: String,
    /// The field of the request that is at fault.
    pub param: Option<String>,
    /// A word for programs, such as `model_not_found`.
    pub code: Option<&'static str>,
}

impl ApiError {
    /// 400 about one field.
    pub(crate) fn field(param: impl Into<String>, what: impl AsRef<str>) -> Self {
        let param = param.into();
        let message = format!("{param}: {}", what.as_ref());
        Self { param: Some(param), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    /// 400 about the request as a whole.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// The last event of a request that was not answered in full.
    pub(crate) fn from_event(event: &RequestEvent) -> Option<Self> {
        let status = match event {
            RequestEvent::Invalid(_) => StatusCode::BAD_REQUEST,
            RequestEvent::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        event.failure().map(|reason| Self::new(status, reason))
    }

    /// `{"error": {...}}`.
    pub(crate) fn body(&self) -> Value {
        let kind = if self.status.is_client_error() { "invalid_request_error" } else { "server_error" };
        json!({"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
