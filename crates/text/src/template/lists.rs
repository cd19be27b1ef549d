//! Values that change: lists that grow, and what namespaces hold.
//!
//! Values in minijinja do not change, but some published templates call `list.append`. In those
//! (see `rewrite`) every list that is written out in the template is made by [`LIST`] instead and
//! can grow.
//!
//! A namespace can change too, so it could come to hold itself, or a list nested ever deeper;
//! printing, comparing or freeing such a value recurses without end. So whatever is stored in
//! either is first copied to a plain value of bounded depth.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minijinja::value::{Enumerator, Object, ObjectRepr, Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::invalid;

/// What the names of the functions here begin with. Templates must not define such names.
pub(super) const RESERVED: &str = "__pomar";
/// The function that makes a list which can grow.
pub(super) const LIST: &str = "__pomar_list";
/// The function that makes a value fit to be stored in a namespace.
pub(super) const STORED: &str = "__pomar_stored";
/// How deep a stored value may nest.
const MAX_DEPTH: usize = 64;

pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_function(LIST, |state: &State, items: &[Value]| -> Result<Value, Error> {
        let items = items.iter().map(|item| plain(state, item, 1)).collect::<Result<_, _>>()?;
        Ok(Value::from_object(GrowingList(Mutex::new(items))))
    });
    environment.add_function(STORED, |state: &State, value: &Value| -> Result<Value, Error> {
        match value.downcast_object_ref::<GrowingList>() {
            Some(_) => Ok(value.clone()),
            None => plain(state, value, 0),
        }
    });
    environment.set_unknown_method_callback(unknown_method_callback);
}

#[derive(Debug)]
struct GrowingList(Mutex<Vec<Value>>);

impl GrowingList {
    fn items(&self) -> MutexGuard<'_, Vec<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out the item at `index`, counted from the end if negative.
    fn pop(&self, index: i64) -> Result<Value, Error> {
        let mut items = self.items();
        let from_start = if index < 0 { index.saturating_add(items.len() as i64) } else { index };
        let at = usize::try_from(from_start).ok().filter(|&at| at < items.len());
        at.map(|at| items.remove(at)).ok_or_else(|| invalid("pop: there is no such item"))
    }
}

impl Object for GrowingList {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items().get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items().len())
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        match method {
            "append" => {
                let (item,): (&Value,) = from_args(args)?;
                let item = plain(state, item, 1)?;
                self.items().push(item);
                Ok(Value::from(()))
            }
            "extend" => {
                let (items,): (&Value,) = from_args(args)?;
                let items: Vec<Value> =
                    items.try_iter()?.map(|i| plain(state, &i, 1)).collect::<Result<_, _>>()?;
                self.items().extend(items);
                Ok(Value::from(()))
            }
            "pop" => {
                let (index,): (Option<i64>,) = from_args(args)?;
                self.pop(index.unwrap_or(-1))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

/// A copy that nothing can change and that nests at most [`MAX_DEPTH`] deep.
fn plain(state: &State, value: &Value, depth: usize) -> Result<Value, Error> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!("a stored value nests deeper than {MAX_DEPTH}")));
    }
    state.consume_fuel(1)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Result<Vec<Value>, Error> =
                value.try_iter()?.map(|i| plain(state, &i, depth + 1)).collect();
            Ok(Value::from(items?))
        }
        ValueKind::Map => {
            let pairs = value.try_iter()?.map(|key| {
                let item = plain(state, &value.get_item(&key)?, depth + 1)?;
                Ok((key, item))
            });
            Ok(Value::from_pairs(pairs.collect::<Result<Vec<_>, Error>>()?))
        }
        ValueKind::Plain => Err(invalid("this kind of value cannot be stored")),
        _ => Ok(value.clone()),
    }
}
