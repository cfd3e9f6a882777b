// The plug-in: compiled once against each MPI. Its contract is mpi/plugin_abi.h.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "mpi_plugin/elements.h"
#include "mpi_plugin/operations.h"

namespace lockstep::mpi_plugin {
namespace {

int threads_of(int level) {
  if (level == MPI_THREAD_MULTIPLE) return lockstep_mpi_multiple;
  if (level == MPI_THREAD_SERIALIZED) return lockstep_mpi_serialized;
  if (level == MPI_THREAD_FUNNELED) return lockstep_mpi_funneled;
  return lockstep_mpi_single;
}

// "Open MPI v4.1.4", "MPICH 4.0.2": MPI's own text has many clauses.
void describe_version(char* text, std::size_t size) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(version, &length);
  std::string_view first(version, std::strcspn(version, "\n,"));
  constexpr std::string_view kMpich = "MPICH Version:";
  std::string shown(first);
  if (first.substr(0, kMpich.size()) == kMpich) {
    first.remove_prefix(kMpich.size());
    first.remove_prefix(std::min(first.find_first_not_of(" \t"), first.size()));
    shown = "MPICH " + std::string(first);
  }
  const std::size_t end = std::min(shown.size(), size - 1);
  std::memcpy(text, shown.data(), end);
  text[end] = '\0';
}

// By default MPI ends the process because of an error. A program that started MPI decides for itself.
int take_errors_as_codes() {
  if (int code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)) return code;
  return MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

int init(lockstep_mpi_combine combine, lockstep_mpi_world* world) {
  *world = {};
  if (int code = MPI_Finalized(&world->ended); code != MPI_SUCCESS || world->ended != 0) return code;
  if (int code = MPI_Initialized(&world->by_program)) return code;
  int level = MPI_THREAD_SINGLE;
  if (world->by_program != 0) {
    if (int code = MPI_Query_thread(&level)) return code;
  } else {
    if (int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level)) return code;
    if (int code = take_errors_as_codes()) return code;
  }
  world->threads = threads_of(level);
  MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world->size);
  describe_version(world->version, sizeof(world->version));
  void* highest_tag = nullptr;
  int found = 0;
  if (int code = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest_tag, &found)) return code;
  world->highest_tag = found != 0 ? *static_cast<int*>(highest_tag) : 32767;  // what every MPI has at least
  return make_elements(combine);
}

void (*finalize_callback)() = nullptr;

int call_back(MPI_Comm, int, void*, void*) {
  finalize_callback();
  return MPI_SUCCESS;
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF before it does anything else.
int at_finalize(void (*callback)()) {
  finalize_callback = callback;
  int key = MPI_KEYVAL_INVALID;
  if (int code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_back, &key, nullptr)) return code;
  return MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

int release() { return free_elements(); }

int finalize() { return MPI_Finalize(); }

void error_text(int code, char* text, std::size_t size) {
  char whole[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, whole, &length) != MPI_SUCCESS) length = 0;
  const std::size_t end = std::min(static_cast<std::size_t>(length), size - 1);
  std::memcpy(text, whole, end);
  text[end] = '\0';
  std::replace(text, text + end, '\n', ' ');
}

int copy_world(lockstep_mpi_comm** comm, lockstep_mpi_request** request) {
  auto fresh_comm = std::make_unique<lockstep_mpi_comm>();
  auto fresh_request = std::make_unique<lockstep_mpi_request>();
  if (int code = MPI_Comm_idup(MPI_COMM_WORLD, &fresh_comm->handle, &fresh_request->handle)) return code;
  fresh_request->new_comm = fresh_comm.get();
  *comm = fresh_comm.release();
  *request = fresh_request.release();
  return MPI_SUCCESS;
}

int create_group(lockstep_mpi_comm* parent, const int* ranks, int count, lockstep_mpi_comm** comm) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  auto fresh = std::make_unique<lockstep_mpi_comm>();
  if (int code = MPI_Comm_group(parent->handle, &all)) return code;
  int code = MPI_Group_incl(all, count, ranks, &members);
  if (code == MPI_SUCCESS) code = MPI_Comm_create_group(parent->handle, members, /*tag=*/0, &fresh->handle);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(fresh->handle, MPI_ERRORS_RETURN);
  if (members != MPI_GROUP_NULL) MPI_Group_free(&members);
  MPI_Group_free(&all);
  if (code == MPI_SUCCESS) *comm = fresh.release();
  return code;
}

int free_comm(lockstep_mpi_comm* comm) {
  const std::unique_ptr<lockstep_mpi_comm> freed(comm);
  return MPI_Comm_free(&freed->handle);
}

int advance() {
  int found = 0;
  return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
}

lockstep_mpi_plugin make_table() {
  lockstep_mpi_plugin table{};
  table.abi_version = LOCKSTEP_MPI_ABI_VERSION;
  table.size = sizeof(table);
  table.name = LOCKSTEP_MPI_NAME;
  table.init = init;
  table.at_finalize = at_finalize;
  table.release = release;
  table.finalize = finalize;
  table.error_text = error_text;
  table.copy_world = copy_world;
  table.create_group = create_group;
  table.free_comm = free_comm;
  table.advance = advance;
  add_operations(&table);
  return table;
}

}  // namespace
}  // namespace lockstep::mpi_plugin

extern "C" __attribute__((visibility("default"))) const lockstep_mpi_plugin* lockstep_mpi_plugin_entry() {
  static const lockstep_mpi_plugin table = lockstep::mpi_plugin::make_table();
  return &table;
}
