// Ranks of one host (or of one process) through memory that all of them see.
//
// Each local rank owns one SharedArea: slots for announcements with small payloads inside, an
// arrival counter, and staging room. All areas are mapped by every local rank. Which memory they
// are in (a memfd passed between processes, or plain memory between threads) is the business of
// shm/ and inproc/; everything here and the host algorithms only see pointers.
//
// Threads: one thread at a time (the one that runs the group's operation) calls announce, arrive
// and wait_*; find, resolve, add_peer_segment and drop_peer_segment are thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep {

class HostTransport;

}  // namespace lockstep
