//! What a finding means on other systems and in programs.
