//! Numbers that Rust and C share: written once, with the name that C has for them.

/// A module of constants of one type, and what the C header says of them (`C`: name and value).
macro_rules! numbers {
    (
        $(#[$doc:meta])*
        pub mod $module:ident: $type:ty, $prefix:literal {
            $($(#[$of:meta])* $name:ident = $value:expr,)*
        }
        $(also { $($more:item)* })?
    ) => {
        $(#[$doc])*
        pub mod $module {
            $($(#[$of])* pub const $name: $type = $value;)*
            $($($more)*)?

            /// What C calls them, and their values.
            pub(crate) const C: &[(&str, u64)] = &[
                $((concat!($prefix, "_", stringify!($name)), $name as u64),)*
            ];
        }
    };
}

pub(crate) use numbers;
