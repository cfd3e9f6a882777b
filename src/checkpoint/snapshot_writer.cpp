#include "checkpoint/snapshot_writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "base/log.h"
#include "base/random.h"
#include "checkpoint/folder_lock.h"
#include "checkpoint/snapshot_directory.h"
#include "lockstep/base/deadline.h"
#include "lockstep/version.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp-";

Status rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return file_error(errno, "renamed to " + to, from);
  return {};
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log_warn("{}", file_error(error.value(), "removed", path).message());
}

Status make_folder(const std::string& folder) {
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error) return file_error(error.value(), "created", folder);
  if (!made) return {};
  const std::string parent = fs::absolute(folder, error).parent_path().string();
  return error ? file_error(error.value(), "found", folder) : sync_folder(parent);
}

// With the lock held, everything temporary belongs to a writer that has died, or has lost the lock and may still rename
// its folder. Renamed first, so that it is either published whole or not at all.
void remove_leftovers(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> leftovers;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kTemporary)) leftovers.push_back(entry->path().string());
  }
  for (const std::string& path : leftovers) {
    log_info("removing {}, which a writer that died has left", path);
    const std::string doomed = fmt::format("{}/{}removed-{}", folder, kTemporary, random_hex(4));
    if (rename_path(path, doomed).ok()) remove_tree(doomed);
  }
}

// Files, manifest and the folder itself, on the disk and read back.
Status write_contents(const std::string& path, Manifest& manifest, std::span<const OutputFile> files) {
  if (::mkdir(path.c_str(), 0777) != 0) return file_error(errno, "created", path);
  manifest.files.clear();
  for (const OutputFile& file : files) {
    auto record = write_file(path, file.name, file.pieces);
    if (!record.ok()) return record.status();
    manifest.files.push_back(std::move(*record));
  }
  const auto text = format_manifest(manifest);
  if (!text.ok()) return text.status();
  const auto record = write_file(path, kManifestName, {std::as_bytes(std::span(text->data(), text->size()))});
  if (!record.ok()) return record.status();
  for (const FileRecord& written : manifest.files) LOCKSTEP_RETURN_IF_ERROR(check_file(path, written));
  LOCKSTEP_RETURN_IF_ERROR(check_file(path, *record));
  return sync_folder(path);
}

// Keeps the newest `keep` that pass a quick check, and damaged ones that are newer than the last of these.
void remove_old(const std::string& folder, const std::vector<SnapshotName>& names, int keep) {
  bool renamed = false;
  std::vector<std::string> doomed;
  for (const SnapshotName& name : names) {
    const std::string path = folder + "/" + name.to_string();
    if (keep > 0) {
      if (glance_at_snapshot(path).ok()) --keep;
      continue;
    }
    // Under its own name a half-removed snapshot would look like a damaged one.
    const std::string temporary = fmt::format("{}/{}old-{}", folder, kTemporary, name.to_string());
    if (const Status status = rename_path(path, temporary); !status.ok()) {
      log_warn("an old snapshot stays: {}", status.message());
      continue;
    }
    renamed = true;
    doomed.push_back(temporary);
  }
  if (renamed) {
    if (const Status status = sync_folder(folder); !status.ok()) log_warn("{}", status.message());
  }
  for (const std::string& path : doomed) remove_tree(path);
}

// already_exists if a newer generation of the manifest's job has written to the folder.
Status check_generation(const std::string& folder, const Manifest& manifest, const std::vector<SnapshotName>& names) {
  if (manifest.job.empty()) return {};
  const WriterIdentity own{manifest.job, manifest.generation};
  for (const SnapshotName& name : names) {
    const std::string path = folder + "/" + name.to_string();
    const auto other = glance_at_snapshot(path);
    if (!other.ok() || !own.is_older_than({other->job, other->generation})) continue;
    return Status(StatusCode::already_exists,
                  fmt::format("{} was written by generation {} of this job, and this process belongs to generation {}: "
                              "the job continues without it, so what it has must not become the newest snapshot",
                              path, other->generation, manifest.generation));
  }
  return {};
}

// A newer generation that takes the lock over removes the temporary folder before it looks at the names. So whenever
// this process is stopped and continues, it publishes before that, or finds that it does not hold the lock, or has
// nothing to rename.
Status publish(const FolderLock& lock, const std::string& temporary, const std::string& path) {
  LOCKSTEP_RETURN_IF_ERROR(lock.is_held());
  const Status renamed = rename_path(temporary, path);
  if (renamed.ok()) return renamed;
  LOCKSTEP_RETURN_IF_ERROR(lock.is_held());  // the better reason
  return renamed;
}

Result<std::string> write_locked(const FolderLock& lock, const std::string& folder, Manifest& manifest,
                                 std::span<const OutputFile> files, int keep_last) {
  remove_leftovers(folder);
  auto names = list_snapshots(folder);
  if (!names.ok()) return names.status();
  LOCKSTEP_RETURN_IF_ERROR(check_generation(folder, manifest, *names));
  const SnapshotName name{names->empty() ? 1 : names->front().serial + 1, manifest.step};
  const std::string path = folder + "/" + name.to_string();
  const std::string temporary = fmt::format("{}/{}{}-{}", folder, kTemporary, name.to_string(), random_hex(4));
  Status status = write_contents(temporary, manifest, files);
  if (!status.ok() && !lock.is_held().ok()) status = lock.is_held();
  if (status.ok()) status = publish(lock, temporary, path);
  if (!status.ok()) {
    remove_tree(temporary);
    return status;
  }
  LOCKSTEP_RETURN_IF_ERROR(sync_folder(folder));
  names->insert(names->begin(), name);
  if (lock.is_held().ok()) remove_old(folder, *names, keep_last);
  return path;
}

std::uint64_t needed_bytes(std::span<const OutputFile> files) {
  std::uint64_t bytes = 0;
  for (const OutputFile& file : files) bytes += total_bytes(file.pieces);
  return bytes;
}

}  // namespace

Result<std::string> write_snapshot(const std::string& folder, Manifest manifest, std::span<const OutputFile> files,
                                   const WriteOptions& options) {
  if (options.keep_last < 1) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("keep_last is {}; at least 1 snapshot has to be kept", options.keep_last));
  }
  manifest.created = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  manifest.lockstep = LOCKSTEP_VERSION;
  const auto write = [&]() -> Result<std::string> {
    LOCKSTEP_RETURN_IF_ERROR(make_folder(folder));
    const auto lock =
        FolderLock::take(folder, {manifest.job, manifest.generation}, Deadline::after(options.lock_timeout));
    if (!lock.ok()) return lock.status();
    return write_locked(*lock, folder, manifest, files, options.keep_last);
  };
  auto path = write();
  if (path.ok()) return path;
  return path.status().with_context(
      fmt::format("the snapshot of step {} ({:.1f} MB) was not written, and older ones are untouched", manifest.step,
                  1e-6 * static_cast<double>(needed_bytes(files))));
}

}  // namespace lockstep::checkpoint
