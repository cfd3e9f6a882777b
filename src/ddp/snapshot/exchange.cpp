#include "ddp/snapshot/exchange.h"

#include <fmt/format.h>

#include <cstring>
#include <new>

#include "base/codec.h"

namespace lockstep::checkpoint {
namespace {

at::Tensor bytes_over(const void* data, std::size_t size) {
  return at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(size)}, at::kByte);
}

// Both sides have the size already.
void broadcast_bytes(ProcessGroup& group, void* data, std::size_t size, int root) {
  if (size > 0) group.broadcast(bytes_over(data, size), root, {}).wait();
}

void broadcast_message(ProcessGroup& group, Bytes& message) {
  const at::Tensor size = at::full({1}, static_cast<std::int64_t>(message.size()), at::kLong);
  group.broadcast(size, 0, {}).wait();
  message.resize(static_cast<std::size_t>(size.item<std::int64_t>()));
  broadcast_bytes(group, message.data(), message.size(), 0);
}

// Everything but the files.
Bytes format_newest(const NewestSnapshot& newest) {
  ByteWriter writer;
  writer.put(static_cast<std::uint32_t>(newest.skipped_snapshots.size()));
  for (const SkippedSnapshot& passed : newest.skipped_snapshots) {
    writer.put_string(passed.path);
    writer.put_string(passed.reason);
  }
  writer.put(static_cast<std::uint8_t>(newest.snapshot.has_value()));
  if (newest.snapshot) {
    writer.put_string(newest.snapshot->path);
    writer.put_string(format_manifest(newest.snapshot->manifest).value());
  }
  return writer.take();
}

NewestSnapshot parse_newest(const Bytes& message) {
  ByteReader reader(message);
  NewestSnapshot newest;
  const auto count = reader.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    std::string path = reader.get_string(message.size());
    newest.skipped_snapshots.push_back({std::move(path), reader.get_string(message.size())});
  }
  if (reader.get<std::uint8_t>() != 0) {
    std::string path = reader.get_string(message.size());
    newest.snapshot = Snapshot{std::move(path), value_or_throw(parse_manifest(reader.get_string(message.size()))), {}};
  }
  if (!reader.complete())
    throw Error({StatusCode::protocol_error, "rank 0 sent an invalid description of the snapshot"});
  return newest;
}

}  // namespace

Status status_of(const std::function<void()>& function) {
  try {
    function();
    return {};
  } catch (const Error& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::resource_exhausted, "there is not enough memory for the snapshot");
  } catch (const c10::Error& error) {
    return Status(StatusCode::internal, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, error.what());
  }
}

void agree(const GroupPointer& group, const Status& mine) {
  if (group == nullptr || group->size() == 1) return throw_if_error(mine);
  const auto length = static_cast<std::int64_t>(mine.message().size());
  const at::Tensor code_and_length = at::empty({2}, at::kLong);
  code_and_length[0] = static_cast<std::int64_t>(mine.code());
  code_and_length[1] = length;
  const at::Tensor all = at::empty({group->size(), 2}, at::kLong);
  group->all_gather(code_and_length, all, {}).wait();
  for (int rank = 0; rank < group->size(); ++rank) {
    const auto code = static_cast<StatusCode>(all[rank][0].item<std::int64_t>());
    if (code == StatusCode::ok) continue;
    std::string message = rank == group->rank() ? mine.message() : "";
    message.resize(static_cast<std::size_t>(all[rank][1].item<std::int64_t>()));
    broadcast_bytes(*group, message.data(), message.size(), rank);
    throw Error({code, rank == group->rank() ? message : fmt::format("on rank {}: {}", rank, message)});
  }
}

std::vector<std::string> gather_on_first(const GroupPointer& group, const std::string& mine) {
  if (group == nullptr || group->size() == 1) return {mine};
  const bool first = group->rank() == 0;
  const auto size = static_cast<std::int64_t>(mine.size());
  const at::Tensor all = first ? at::empty({group->size() * size}, at::kByte) : at::Tensor();
  group->gather(bytes_over(mine.data(), mine.size()), all, 0, {}).wait();
  std::vector<std::string> result;
  for (int rank = 0; first && rank < group->size(); ++rank) {
    result.emplace_back(static_cast<const char*>(all.data_ptr()) + rank * size, mine.size());
  }
  return result;
}

void share_from_first(const GroupPointer& group, NewestSnapshot& newest) {
  if (group == nullptr || group->size() == 1) return;
  Bytes message;
  if (group->rank() == 0) message = format_newest(newest);
  broadcast_message(*group, message);
  if (group->rank() != 0) newest = parse_newest(message);
  if (!newest.snapshot) return;
  for (const FileRecord& record : newest.snapshot->manifest.files) {
    FileBytes& file = newest.snapshot->files[record.name];
    if (group->rank() != 0) file = {std::make_unique_for_overwrite<std::byte[]>(record.bytes), record.bytes};
    broadcast_bytes(*group, file.data.get(), file.size, 0);
  }
}

}  // namespace lockstep::checkpoint
