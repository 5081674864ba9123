//! Settings that hold after a reboot, in the files of whichever program owns an interface.
