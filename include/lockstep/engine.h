// The engine, whole: process groups, their collectives, and the stores in which ranks meet.
#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/collectives/types.h"
#include "lockstep/group/options.h"
#include "lockstep/group/process_group.h"
#include "lockstep/group/registered_memory.h"
#include "lockstep/group/work.h"
#include "lockstep/rendezvous/options.h"
#include "lockstep/store/store.h"
#include "lockstep/version.h"
