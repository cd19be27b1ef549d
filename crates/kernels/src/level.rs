//! Instruction sets, chosen once at run time, and the macro that compiles one body for each of them.
//!
//! Rust neither reassociates nor contracts float operations. A function compiled for two instruction sets
//! therefore gives the same bits on both, as long as it is the same Rust source and asks for fused steps by
//! name ([`f32::mul_add`]). [`by_level!`](crate::by_level) is built on that: the compiler may vectorise each
//! copy as it likes, and nothing of it shows in the results.

use std::fmt;
use std::sync::OnceLock;

use thiserror::Error;

/// The environment variable that forces a level: `plain`, `avx2`, `avx512` or `neon`.
pub const LEVEL_VARIABLE: &str = "POMAR_SIMD";

/// A set of instructions that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// What every processor of the architecture has. The reference that the others are tested against.
    Plain,
    /// x86-64 with AVX2, FMA and F16C (Haswell, 2013, and later).
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VNNI (Ice Lake, Zen 4, and later).
    Avx512,
    /// 64-bit Arm. Every processor has it; integer dot products are used where they are detected.
    Neon,
}

/// Why the level asked for by [`LEVEL_VARIABLE`] can't be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LevelError {
    /// The value is no level's name.
    #[error(
        "{LEVEL_VARIABLE}={value}: no such instruction set; use plain, avx2, avx512 or neon, or unset it"
    )]
    Unknown {
        /// What the variable holds.
        value: String,
    },
    /// The processor lacks the instructions.
    #[error("{LEVEL_VARIABLE}={asked}: this processor can't run that; the best it has is {best}")]
    Unsupported {
        /// The level asked for.
        asked: Level,
        /// What [`Level::best`] found.
        best: Level,
    },
}

impl Level {
    /// Every level, whether or not this machine supports it.
    pub const ALL: [Level; 4] = [Level::Plain, Level::Avx2, Level::Avx512, Level::Neon];

    /// The fastest level of this processor, whatever the environment says.
    pub fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(detect)
    }

    /// Whether this processor can run the level's instructions.
    pub fn is_supported(self) -> bool {
        let best = Level::best();
        self == Level::Plain || self == best || (self == Level::Avx2 && best == Level::Avx512)
    }

    /// The levels that this processor can run, [`Level::Plain`] first.
    pub fn supported() -> impl Iterator<Item = Level> {
        Level::ALL.into_iter().filter(|level| level.is_supported())
    }

    /// The level that [`LEVEL_VARIABLE`] asks for, or [`Level::best`] when it is unset or empty.
    ///
    /// # Errors
    /// The value is unknown, or names a level that this processor can't run.
    pub fn from_env() -> Result<Level, LevelError> {
        match std::env::var_os(LEVEL_VARIABLE) {
            None => Ok(Level::best()),
            Some(value) => Level::parse(&value.to_string_lossy()),
        }
    }

    /// As [`Level::from_env`], for a given value.
    ///
    /// # Errors
    /// As [`Level::from_env`].
    pub fn parse(value: &str) -> Result<Level, LevelError> {
        if value.is_empty() {
            return Ok(Level::best());
        }
        let asked = Level::ALL
            .into_iter()
            .find(|level| level.name() == value)
            .ok_or_else(|| LevelError::Unknown { value: value.to_owned() })?;
        if asked.is_supported() {
            Ok(asked)
        } else {
            Err(LevelError::Unsupported { asked, best: Level::best() })
        }
    }

    /// The name that [`LEVEL_VARIABLE`] takes.
    pub fn name(self) -> &'static str {
        match self {
            Level::Plain => "plain",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Neon => "neon",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The level that this process computes with, decided at the first call.
///
/// A bad value of [`LEVEL_VARIABLE`] is ignored here; a program that wants to complain calls
/// [`Level::from_env`] at its start.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| Level::from_env().unwrap_or_else(|_| Level::best()))
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Plain,
    }
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Level {
    Level::Neon
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Level {
    Level::Plain
}

/// Compiles one plain Rust function for every level and puts a dispatcher in front.
///
/// The function written inside gets one more parameter at the front, the [`Level`] to run at; callers pass
/// [`level()`], tests pass each of [`Level::supported`]. Parameters are plain identifiers (no patterns, no
/// `mut`); lifetimes are elided; the only generics are constants. Helpers called in the body must be
/// `#[inline(always)]`, or they are compiled once, for the plain level.
///
/// ```
/// use pomar_kernels::{by_level, level};
///
/// by_level! {
///     /// Adds `a * x` to `y`.
///     fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
///         for (y, &x) in y.iter_mut().zip(x) {
///             *y = x.mul_add(a, *y);
///         }
///     }
/// }
///
/// let mut y = [1.0, 2.0];
/// axpy(level(), 2.0, &[10.0, 20.0], &mut y);
/// assert_eq!(y, [21.0, 42.0]);
/// ```
///
/// # Panics
/// The generated function panics when the processor doesn't support the level it is given.
#[macro_export]
macro_rules! by_level {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident $(<$(const $constant:ident : $constant_type:ty),+>)?
        ($($argument:ident : $type:ty),* $(,)?) $(-> $result:ty)? $body:block
    )+) => {$(
        $(#[$attribute])*
        $visibility fn $name $(<$(const $constant: $constant_type),+>)? (
            level: $crate::Level, $($argument: $type),*
        ) $(-> $result)? {
            #[inline(always)]
            fn body $(<$(const $constant: $constant_type),+>)? ($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2 $(<$(const $constant: $constant_type),+>)? ($($argument: $type),*) $(-> $result)? {
                body $(::<$($constant),+>)? ($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
            fn avx512 $(<$(const $constant: $constant_type),+>)? ($($argument: $type),*) $(-> $result)? {
                body $(::<$($constant),+>)? ($($argument),*)
            }

            assert!(level.is_supported(), "{level} is not supported by this processor");
            match level {
                // SAFETY: the assertion above found these instructions on this processor.
                #[cfg(target_arch = "x86_64")]
                $crate::Level::Avx2 => unsafe { avx2 $(::<$($constant),+>)? ($($argument),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::Level::Avx512 => unsafe { avx512 $(::<$($constant),+>)? ($($argument),*) },
                _ => body $(::<$($constant),+>)? ($($argument),*),
            }
        }
    )+};
}

#[cfg(test)]
mod tests {
    use super::*;

    by_level! {
        fn dot<const N: usize>(x: &[f32; N], y: &[f32; N]) -> f32 {
            let mut sum = 0.0f32;
            for i in 0..N {
                sum = x[i].mul_add(y[i], sum);
            }
            sum
        }
    }

    #[test]
    fn every_supported_level_gives_the_same_bits() {
        let x: [f32; 33] = std::array::from_fn(|i| (i as f32 + 0.3) / 7.0);
        let y: [f32; 33] = std::array::from_fn(|i| 1.0 / (i as f32 + 1.7));
        let plain = dot(Level::Plain, &x, &y);
        for level in Level::supported() {
            assert_eq!(dot(level, &x, &y).to_bits(), plain.to_bits(), "{level}");
        }
    }

    #[test]
    fn names_are_parsed_and_bad_ones_refused() {
        assert_eq!(Level::parse("plain"), Ok(Level::Plain));
        assert_eq!(Level::parse(""), Ok(Level::best()));
        let error = Level::parse("AVX3").unwrap_err();
        assert!(error.to_string().contains("plain, avx2, avx512 or neon"), "{error}");
        let foreign = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
        assert!(matches!(Level::parse(foreign), Err(LevelError::Unsupported { .. })));
    }
}
