// A process of an elastic job whose whole state is a counter: what the tests of Participant run.
//
// Every step is one all-reduce in which all ranks take part. Prints "generation <g> rank <r> of <n> step <s>" when a
// generation starts, and "finished at step <s>" at the end. The job ends when the file FINISH exists.
#pragma once

namespace lockstep::testing {

int run_counting_rank();

}  // namespace lockstep::testing
