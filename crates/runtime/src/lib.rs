//! Devices, buffers, planning and execution of compute graphs.
