#include "launch/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/net/socket.h"

namespace lockstep::launch {
namespace {

Status wrong(std::string message) { return Status(StatusCode::invalid_argument, std::move(message)); }

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

Status check_runnable(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return wrong(fmt::format("there is no program '{}'", path));
    return wrong(fmt::format("the program '{}' cannot be accessed: {}", path, errno_text(errno)));
  }
  if (S_ISDIR(info.st_mode)) return wrong(fmt::format("'{}' is a directory, not a program", path));
  // For root, access(2) reports files as executable that have no execute bit; exec refuses them.
  if (::access(path.c_str(), X_OK) != 0 || (info.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) == 0)
    return wrong(fmt::format("'{}' is not executable; run chmod +x on it", path));
  return {};
}

Result<std::string> find_in_path(const std::string& name, const Environment& environment) {
  const std::string path = environment("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  Status refusal;
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t end = std::min(path.find(':', start), path.size());
    const std::string folder = path.substr(start, end - start);
    const std::string candidate = folder.empty() ? name : fmt::format("{}/{}", folder, name);
    start = end + 1;
    if (!is_file(candidate)) continue;
    const Status status = check_runnable(candidate);
    if (status.ok()) return candidate;
    if (refusal.ok()) refusal = status;
  }
  if (!refusal.ok()) return refusal;
  std::error_code ignored;
  if (std::filesystem::is_directory(name, ignored))
    return wrong(fmt::format("'{}' is a directory, not a program", name));
  if (is_file(name))
    return wrong(
        fmt::format("there is no program '{}' in PATH; to run the file in this folder, write ./{}", name, name));
  return wrong(fmt::format("there is no program '{}' in PATH", name));
}

Result<std::string> find_program(const std::string& name, const Environment& environment) {
  if (name.find('/') == std::string::npos) return find_in_path(name, environment);
  LOCKSTEP_RETURN_IF_ERROR(check_runnable(name));
  return name;
}

// "python3.11", "/usr/bin/python".
bool is_interpreter(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.starts_with("python") && name.find_first_not_of("0123456789.", 6) == std::string::npos;
}

}  // namespace

Result<Command> find_command(const RunOptions& options, const Environment& environment) {
  Command command;
  const bool script = options.program.ends_with(".py") && !options.no_python;
  if (script || options.module) {
    const std::string python = options.python.empty() ? "python3" : options.python;
    auto path = find_program(python, environment);
    if (!path.ok()) return path.status().with_context("to start a Python script");
    if (script && !is_file(options.program)) {
      std::error_code ignored;
      const bool folder = std::filesystem::is_directory(options.program, ignored);
      return wrong(folder ? fmt::format("'{}' is a directory, not a script", options.program)
                          : fmt::format("there is no script '{}'", options.program));
    }
    if (script && ::access(options.program.c_str(), R_OK) != 0)
      return wrong(fmt::format("the script '{}' cannot be read: {}", options.program, errno_text(errno)));
    command.path = *std::move(path);
    // -u: the script's output appears immediately, and is not lost when it is killed.
    command.arguments = {python, "-u"};
    if (options.module) command.arguments.emplace_back("-m");
    command.is_python = true;
  } else {
    auto path = find_program(options.program, environment);
    if (!path.ok()) return path.status();
    command.path = *std::move(path);
    command.is_python = is_interpreter(command.path);
  }
  command.arguments.push_back(options.program);
  command.arguments.insert(command.arguments.end(), options.arguments.begin(), options.arguments.end());
  return command;
}

}  // namespace lockstep::launch
