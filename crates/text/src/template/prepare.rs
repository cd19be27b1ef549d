//! From a request to the variables a template sees.

use minijinja::Value as Variable;
use serde_json::{Map, Value};

use super::{Render, TemplateError};

/// How deep JSON in a request may nest; a tool's schema rarely passes ten.
const MAX_DEPTH: usize = 64;

/// What becomes of a message's keys whose value is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nulls {
    /// The key is left out, as `transformers` does. Some templates then fail on a message
    /// without content.
    #[default]
    Drop,
    /// `content: null` becomes `""`, which every template copes with; other nulls stay.
    EmptyContent,
    /// Nulls are passed on.
    Keep,
}

/// Roughly the bytes of JSON in the request, after checking its depth.
pub(super) fn measure(request: &Render<'_>) -> Result<usize, TemplateError> {
    let mut bytes = 0;
    let values = request.messages.iter().chain(request.tools.unwrap_or_default());
    for value in values.chain(request.kwargs.into_iter().flat_map(Map::values)) {
        bytes += measure_value(value, 1)?;
    }
    Ok(bytes)
}

fn measure_value(value: &Value, depth: usize) -> Result<usize, TemplateError> {
    if depth > MAX_DEPTH {
        return Err(TemplateError::Limit(format!("messages or tools nest deeper than {MAX_DEPTH}")));
    }
    Ok(match value {
        Value::String(text) => text.len() + 3,
        Value::Array(items) => {
            items.iter().try_fold(2, |sum, item| Ok(sum + measure_value(item, depth + 1)?))?
        }
        Value::Object(map) => map
            .iter()
            .try_fold(2, |sum, (key, item)| Ok(sum + key.len() + 4 + measure_value(item, depth + 1)?))?,
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    })
}

/// The variables of the template. `tools` and `documents` are none rather than undefined when
/// there are none, as in `transformers`.
pub(super) fn context(request: &Render<'_>) -> Variable {
    let messages: Vec<Variable> = request.messages.iter().map(|m| message(m, request.nulls)).collect();
    let mut variables: Vec<(String, Variable)> = vec![
        ("messages".to_owned(), messages.into()),
        (
            "tools".to_owned(),
            request.tools.map_or(Variable::from(()), |tools| tools.iter().map(variable).collect()),
        ),
        ("documents".to_owned(), Variable::from(())),
        ("add_generation_prompt".to_owned(), request.add_generation_prompt.into()),
    ];
    for (name, token) in [("bos_token", request.bos_token), ("eos_token", request.eos_token)] {
        variables.extend(token.map(|text| (name.to_owned(), text.into())));
    }
    let kwargs = request.kwargs.into_iter().flatten();
    variables.extend(kwargs.map(|(name, value)| (name.clone(), variable(value))));
    Variable::from_pairs(variables)
}

fn message(message: &Value, nulls: Nulls) -> Variable {
    let Value::Object(fields) = message else {
        return variable(message);
    };
    let seen = |(key, value): (&String, &Value)| match (value.is_null(), nulls) {
        (true, Nulls::Drop) => None,
        (true, Nulls::EmptyContent) if key == "content" => Some((key.clone(), Variable::from(""))),
        _ => Some((key.clone(), variable(value))),
    };
    let mut pairs: Vec<(String, Variable)> = fields.iter().filter_map(seen).collect();
    // Some templates read the reasoning of earlier turns under this name only.
    if let Some(reasoning) = fields.get("reasoning_content").filter(|_| !fields.contains_key("thinking")) {
        pairs.push(("thinking".to_owned(), variable(reasoning)));
    }
    Variable::from_pairs(pairs)
}

/// The same value as the template engine has it; objects keep the order of their keys.
fn variable(value: &Value) -> Variable {
    match value {
        Value::Null => Variable::from(()),
        Value::Bool(yes) => Variable::from(*yes),
        Value::Number(number) => {
            let integer = number.as_i64().map(Variable::from).or_else(|| number.as_u64().map(Variable::from));
            integer.unwrap_or_else(|| Variable::from(number.as_f64().unwrap_or(f64::NAN)))
        }
        Value::String(text) => Variable::from(text.as_str()),
        Value::Array(items) => items.iter().map(variable).collect(),
        Value::Object(map) => {
            Variable::from_pairs(map.iter().map(|(key, item)| (key.clone(), variable(item))))
        }
    }
}
