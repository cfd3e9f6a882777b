# Of the tests that CTest has found in strangers_tests.
foreach(test IN LISTS strangers_tests_TESTS)
  if(test MATCHES "^StrangersFlood")
    set_tests_properties("${test}" PROPERTIES LABELS "multiproc;check")
  endif()
endforeach()
