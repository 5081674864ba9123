//! Named sets of settings, each with its reason.
