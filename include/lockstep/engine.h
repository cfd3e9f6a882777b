// The engine, without torch: communicators, their collectives, and stores. Link lockstep::engine.
#pragma once

// Start a job: how the ranks find each other, and whether a launcher started this process.
#include "lockstep/rendezvous/init_options.h"
#include "lockstep/rendezvous/launched.h"

// Communicators: groups of ranks, their asynchronous operations, and registered memory.
#include "lockstep/communicator/communicator.h"
#include "lockstep/communicator/registered_memory.h"
#include "lockstep/communicator/work.h"

// Collectives: element types, reductions, options, and operations as data.
#include "lockstep/collectives/call_options.h"
#include "lockstep/collectives/operation.h"
#include "lockstep/collectives/types.h"

// Learning-rate schedules.
#include "lockstep/optim/schedule.h"

// Metrics and progress of the training, marks for the parts of its loop, and which rank the others wait for.
#include "lockstep/record/metrics.h"
#include "lockstep/record/metrics_writer.h"
#include "lockstep/record/phase.h"
#include "lockstep/record/progress.h"
#include "lockstep/record/straggler.h"

// Stores, through which ranks find each other.
#include "lockstep/store/store.h"
#include "lockstep/store/stores.h"

// Errors, deadlines, and the job's secret.
#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"

// The version of Lockstep.
#include "lockstep/version.h"
