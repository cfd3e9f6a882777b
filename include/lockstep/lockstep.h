// Everything: the engine, and distributed training on LibTorch. Link lockstep::ddp.
#pragma once

#include "lockstep/ddp/clip_grad.h"
#include "lockstep/ddp/comm_hook.h"
#include "lockstep/ddp/data_parallel.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/distributed_sampler.h"
#include "lockstep/ddp/gradient_synchronizer.h"
#include "lockstep/ddp/hooks.h"
#include "lockstep/ddp/init.h"
#include "lockstep/ddp/model_averaging.h"
#include "lockstep/ddp/options.h"
#include "lockstep/ddp/spawn.h"
#include "lockstep/ddp/sync_batch_norm.h"
#include "lockstep/ddp/tensor_collectives.h"
#include "lockstep/ddp/tensor_group.h"
#include "lockstep/ddp/zero_redundancy_optimizer.h"
#include "lockstep/engine.h"
