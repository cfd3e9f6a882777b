// Named places in the code at which a test can kill, stop or delay the process that reaches them.
//
// LOCKSTEP_FAILPOINTS names a folder. A file <name>.kill, <name>.stop or <name>.delay in it arms the place <name>: the
// first process that gets there removes the file and acts (SIGKILL, SIGSTOP, a pause of half a second). So a test can
// arm a place while the processes run, and exactly one process is hit. Without the variable, a failpoint costs one
// load.
//
// For places that are passed a few times per generation, not for every operation. Thread-safe.
#pragma once

namespace lockstep {

void failpoint(const char* name);

}  // namespace lockstep
