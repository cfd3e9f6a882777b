#include "checkpoint/snapshot_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/log.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kPrefix = "snapshot-";
constexpr std::string_view kMiddle = "-step-";

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<Manifest> read_manifest(const std::string& path) {
  const std::string file = path + "/" + kManifestName;
  const auto text = read_file(file);
  if (!text.ok()) return text.status();
  auto manifest = parse_manifest(text->text());
  if (!manifest.ok()) return manifest.status().with_context(file);
  return manifest;
}

}  // namespace

std::string SnapshotName::to_string() const { return fmt::format("{}{:06}{}{}", kPrefix, serial, kMiddle, step); }

std::optional<SnapshotName> SnapshotName::parse(std::string_view text) {
  const std::size_t middle = text.find(kMiddle);
  if (!text.starts_with(kPrefix) || middle == std::string_view::npos || middle < kPrefix.size()) return std::nullopt;
  const auto serial = parse_number<std::uint64_t>(text.substr(kPrefix.size(), middle - kPrefix.size()));
  const auto step = parse_number<std::int64_t>(text.substr(middle + kMiddle.size()));
  if (!serial || !step) return std::nullopt;
  const SnapshotName name{*serial, *step};
  if (name.to_string() != text) return std::nullopt;  // one spelling for each
  return name;
}

Result<std::vector<SnapshotName>> list_snapshots(const std::string& folder) {
  std::vector<SnapshotName> names;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  while (!error && entries != std::filesystem::directory_iterator()) {
    if (const auto name = SnapshotName::parse(entries->path().filename().string())) names.push_back(*name);
    entries.increment(error);
  }
  if (error) return file_error(error.value(), "listed", folder);
  std::ranges::sort(names, std::greater<>());
  return names;
}

Result<Manifest> glance_at_snapshot(const std::string& path) {
  auto manifest = read_manifest(path);
  if (!manifest.ok()) return manifest;
  for (const FileRecord& record : manifest->files) LOCKSTEP_RETURN_IF_ERROR(check_size(path, record));
  return manifest;
}

Result<Snapshot> read_snapshot(const std::string& path) {
  auto manifest = read_manifest(path);
  if (!manifest.ok()) return manifest.status();
  Snapshot snapshot{path, std::move(*manifest), {}};
  for (const FileRecord& record : snapshot.manifest.files) {
    auto bytes = read_checked_file(path, record);
    if (!bytes.ok()) return bytes.status();
    snapshot.files[record.name] = std::move(*bytes);
  }
  return snapshot;
}

Result<NewestSnapshot> read_newest_snapshot(const std::string& folder) {
  const auto names = list_snapshots(folder);
  if (!names.ok()) return names.status();
  NewestSnapshot newest;
  for (const SnapshotName& name : *names) {
    const std::string path = folder + "/" + name.to_string();
    auto snapshot = read_snapshot(path);
    if (snapshot.ok()) {
      newest.snapshot = std::move(*snapshot);
      return newest;
    }
    log_warn("skipping the snapshot {}: {}", path, snapshot.status().message());
    newest.skipped_snapshots.push_back({path, snapshot.status().message()});
  }
  if (names->empty()) return newest;
  std::string reasons;
  for (const SkippedSnapshot& skipped : newest.skipped_snapshots) reasons += "; " + skipped.reason;
  return Status(StatusCode::protocol_error,
                fmt::format("none of the {} snapshots in {} can be used{}; to start over, choose an empty folder",
                            names->size(), folder, reasons));
}

}  // namespace lockstep::checkpoint
