#include "lockstep/base/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "base/net/socket.h"
#include "base/unique_fd.h"

namespace lockstep {

namespace {

// Byte by byte: the C library's functions leave what they copied or measured in vector registers, and the dynamic
// linker saves those on the stack when a function is called for the first time.
void copy_secret(char* to, const char* from, std::size_t size) {
  const volatile char* const source = from;
  for (std::size_t i = 0; i < size; ++i) to[i] = source[i];
}
std::size_t secret_length(const char* value) {
  const volatile char* const source = value;
  std::size_t size = 0;
  while (source[size] != '\0') ++size;
  return size;
}

}  // namespace

// In pages of its own: a core dump leaves out whole pages only.
class Secret::Key {
 public:
  explicit Key(std::string_view key)
      : size_(key.size()), memory_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    // Can fail only if the kernel lacks it; the key is protected against other users either way.
    [[maybe_unused]] const int left_out = ::madvise(memory_, size_, MADV_DONTDUMP);
    copy_secret(static_cast<char*>(memory_), key.data(), size_);
  }
  ~Key() {
    ::explicit_bzero(memory_, size_);
    ::munmap(memory_, size_);
  }
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;
  std::string_view text() const { return {static_cast<const char*>(memory_), size_}; }

 private:
  const std::size_t size_;
  void* const memory_;
};

Secret::Secret(std::string_view key) : key_(key.empty() ? nullptr : std::make_shared<const Key>(key)) {}

std::string_view Secret::key() const { return key_ ? key_->text() : std::string_view(""); }

namespace {

constexpr std::size_t kMaxSecretBytes = 4096;
constexpr std::string_view kVariable = "LOCKSTEP_SECRET=";
constexpr std::string_view kTakenPrefix = "(taken by process ";

Status refuse(const std::string& path, std::string_view why) {
  return Status(StatusCode::invalid_argument, fmt::format("LOCKSTEP_SECRET_FILE={}: {}", path, why));
}

std::string too_short(std::size_t characters) {
  return fmt::format(
      "the secret has {} characters; {} or more are needed, because shorter ones can be guessed. Make one "
      "with: od -An -N32 -tx1 /dev/urandom | tr -d ' \\n'",
      characters, Secret::kMinCharacters);
}

// What is read into it is overwritten at its end.
struct SecretBuffer {
  ~SecretBuffer() { ::explicit_bzero(bytes.data(), bytes.size()); }
  std::array<char, kMaxSecretBytes + 1> bytes{};
};

Result<Secret> read_secret(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return refuse(path, fmt::format("cannot open the file: {}", errno_text(errno)));
  // The open file is checked, not the name, so that the file cannot be replaced in between.
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return refuse(path, errno_text(errno));
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return refuse(path, fmt::format("its mode is {:04o}: users other than its owner have access to it; run chmod 600",
                                    info.st_mode & 07777U));
  }
  SecretBuffer buffer;
  std::size_t size = 0;
  while (size < buffer.bytes.size()) {
    const ssize_t got = ::read(fd.get(), buffer.bytes.data() + size, buffer.bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse(path, fmt::format("cannot read the file: {}", errno_text(errno)));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kMaxSecretBytes) return refuse(path, fmt::format("longer than {} bytes", kMaxSecretBytes));
  std::string_view key(buffer.bytes.data(), size);
  if (key.ends_with('\n')) key.remove_suffix(1);
  if (key.ends_with('\r')) key.remove_suffix(1);
  if (key.size() < Secret::kMinCharacters) return refuse(path, too_short(key.size()));
  return Secret(key);
}

// Where environ(7) has the value itself, so that it can be overwritten; null if it is elsewhere.
char* place_in_environment(const char* value) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, kVariable.data(), kVariable.size()) != 0) continue;
    if (*entry + kVariable.size() == value) return *entry + kVariable.size();
  }
  return nullptr;
}

// What was taken from the environment of this process.
struct Taken {
  std::mutex mutex;
  // Guarded by mutex. The text that replaced the value, which a forked process has too.
  std::string mark;
  Secret secret;
};

// Leaked on purpose: threads may still use it while static objects are destroyed.
Taken& taken() {
  static auto* const instance = new Taken;
  return *instance;
}

Result<Secret> take_from_environment(const char* value) {
  Taken& state = taken();
  const std::lock_guard lock(state.mutex);
  if (!state.mark.empty() && state.mark == value) return state.secret;
  // Only now: another thread overwrites the value while it takes it.
  if (*value == '\0') {
    return Status(StatusCode::invalid_argument,
                  "LOCKSTEP_SECRET is set but empty; set it to a value, or unset it to run without a secret");
  }
  if (std::strncmp(value, kTakenPrefix.data(), kTakenPrefix.size()) == 0) {
    return Status(
        StatusCode::invalid_argument,
        fmt::format("LOCKSTEP_SECRET is '{}', which started this program: processes of a job do not pass their "
                    "secret on. Write it to a file that only its owner can read, and set LOCKSTEP_SECRET_FILE "
                    "instead of LOCKSTEP_SECRET for the job",
                    value));
  }
  const std::size_t size = secret_length(value);
  if (size < Secret::kMinCharacters) {
    return Status(StatusCode::invalid_argument, "LOCKSTEP_SECRET: " + too_short(size));
  }
  Secret secret{std::string_view(value, size)};
  // Not unsetenv(): other threads may read other variables now, and the value would stay in memory.
  if (char* const place = place_in_environment(value); place != nullptr) {
    const std::string mark = fmt::format("{}{})", kTakenPrefix, ::getpid()).substr(0, size);
    ::explicit_bzero(place, size);
    std::copy(mark.begin(), mark.end(), place);
    state.mark = mark;
    state.secret = secret;
  }
  return secret;
}

}  // namespace

Result<Secret> Secret::from_environment() {
  const char* value = std::getenv("LOCKSTEP_SECRET");
  const char* path = std::getenv("LOCKSTEP_SECRET_FILE");
  if (value != nullptr && path != nullptr) {
    return Status(StatusCode::invalid_argument,
                  "both LOCKSTEP_SECRET and LOCKSTEP_SECRET_FILE are set; set one of them");
  }
  if (path != nullptr) return read_secret(path);
  if (value == nullptr) return Secret();
  return take_from_environment(value);
}

}  // namespace lockstep
