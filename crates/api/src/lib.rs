//! The HTTP API: OpenAI-compatible completions, models, health.
