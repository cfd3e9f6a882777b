// A device in software, to test what is written for GPUs on machines that have none.
//
// LibTorch's device type privateuseone gets four devices with streams. Their memory faults when the host accesses it:
// only this device's kernels have the address at which it can be read. They run the CPU's kernels, one after the other.
// Streams only record which stream waits for which.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "lockstep/ddp/process_group.h"

namespace lockstep::testing {

constexpr at::DeviceType kFake = at::kPrivateUse1;

// Before the first use of the device, once per process; further calls do nothing.
void install_fake_device();

// The calling thread's current stream of a device, by number; 0 is the default.
void set_fake_stream(at::DeviceIndex device, int stream);
// "3<1" for every time that stream 3 was made to wait for stream 1, since the last call; of all threads.
std::vector<std::string> take_stream_waits();

// Tensors of the fake device on a group of the CPU, as a GPU's engine would take them: an operation is complete for the
// host when it is issued, and its result is visible to threads that have waited. CPU tensors go directly to the group.
std::shared_ptr<ProcessGroup> group_for_fake_device(std::shared_ptr<ProcessGroup> group);

}  // namespace lockstep::testing
