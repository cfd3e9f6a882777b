// The engine, whole: process groups, their collectives, and the stores in which ranks meet.
#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/status.h"
#include "lockstep/collectives/types.h"
#include "lockstep/group/options.h"
#include "lockstep/group/process_group.h"
#include "lockstep/group/registered_memory.h"
#include "lockstep/group/work.h"
#include "lockstep/rendezvous/options.h"
#include "lockstep/store/file_store.h"
#include "lockstep/store/memory_store.h"
#include "lockstep/store/prefix_store.h"
#include "lockstep/store/store.h"
#include "lockstep/store/tcp_store.h"
#include "lockstep/store/tcp_store_server.h"
#include "lockstep/version.h"
