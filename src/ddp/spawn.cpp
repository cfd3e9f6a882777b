#include "lockstep/ddp/spawn.h"
namespace lockstep {}
