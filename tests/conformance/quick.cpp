// The tests that always run, also with sanitizers.
#include "conformance/conformance.h"

namespace lockstep::conformance {

using ::testing::Combine;
using ::testing::Values;

INSTANTIATE_TEST_SUITE_P(OneHost, Conformance, Combine(Values(Connection::threads, Connection::shm), Values(1, 2, 3)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Tcp, Conformance, Combine(Values(Connection::tcp), Values(2, 3)), test_name);
INSTANTIATE_TEST_SUITE_P(TwoHosts, Conformance, Combine(Values(Connection::mixed), Values(4)), test_name);

}  // namespace lockstep::conformance
