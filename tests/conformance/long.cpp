// More ranks: the same promises, more time.
#include "conformance/conformance.h"

namespace lockstep::conformance {

using ::testing::Combine;
using ::testing::Values;

INSTANTIATE_TEST_SUITE_P(OneHost, Conformance, Combine(Values(Connection::threads, Connection::shm), Values(4, 5, 8)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Tcp, Conformance, Combine(Values(Connection::tcp), Values(4, 5, 8)), test_name);
INSTANTIATE_TEST_SUITE_P(TwoHosts, Conformance, Combine(Values(Connection::mixed), Values(3, 5, 8)), test_name);
INSTANTIATE_TEST_SUITE_P(Interleaved, Conformance, Combine(Values(Connection::interleaved), Values(4, 5)), test_name);

}  // namespace lockstep::conformance
