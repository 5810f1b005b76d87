//! The CPU device: thread team and kernels.
