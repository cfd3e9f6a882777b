# lockstep_embed_page(<target>): adds dashboard/page.html to a target, as the text that dashboard/page.h returns. The page is
# committed as it is served (dashboard/README.md), so that building it needs no Node.
function(lockstep_embed_page target)
  set(html ${PROJECT_SOURCE_DIR}/dashboard/page.html)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${html})
  file(READ ${html} page)
  configure_file(${PROJECT_SOURCE_DIR}/src/dashboard/page_text.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/page_text.cpp @ONLY)
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/page_text.cpp)
  set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/page_text.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
