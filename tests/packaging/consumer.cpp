// What a user's first program is to Lockstep: it needs the headers, the library, and nothing else.
#include <lockstep/engine.h>

#include <cstdio>
#include <string>

int main() {
  try {
    lockstep::throw_if_error(lockstep::Status(lockstep::StatusCode::not_found, "thrown across the library's border"));
  } catch (const lockstep::Error& error) {
    std::printf("lockstep %s, %s: %s\n", LOCKSTEP_VERSION, std::string(to_string(lockstep::DType::bf16)).c_str(),
                error.what());
    return 0;
  }
  return 1;
}
