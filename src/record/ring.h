// A ring of records of one size, in memory that other processes may read at any time, without locks.
//
// Each record has a version: odd while it is written, 2 * (number + 1) when it is complete, where `number` counts the
// records of the ring from 0. A reader takes a record only if its version is complete and the same before and after.
// All words are atomics, so that reading while another process writes is no data race. Single words of a complete
// record may still change: a reader that sees a changed word also sees the changes made before in words that follow it.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace lockstep::record {

template <typename Record>
class alignas(64) RingSlot {
 public:
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) % 8 == 0);
  static constexpr std::size_t kWords = sizeof(Record) / 8;
  using Words = std::array<std::uint64_t, kWords>;

  // One writer at a time. A writer that is killed in between leaves an odd version: the record is lost, no other.
  void write(std::uint64_t number, const Record& record) {
    // Relaxed: a reader that sees a word of the new record (release, acquire) sees this or a later version, too.
    version_.store(2 * number + 1, std::memory_order_relaxed);
    const Words words = std::bit_cast<Words>(record);
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(2 * number + 2, std::memory_order_release);  // pairs with the acquire in read()
  }
  // By the writer of the record: changes one word of it.
  void set_word(std::size_t word, std::uint64_t value) {
    words_[word].store(value, std::memory_order_release);  // pairs with the acquire of the word in read()
  }

  std::optional<Record> read(std::uint64_t number) const {
    const std::uint64_t complete = 2 * number + 2;
    if (version_.load(std::memory_order_acquire) != complete) return std::nullopt;  // pairs with the release in write()
    Words words;
    for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);  // see write()
    if (version_.load(std::memory_order_relaxed) != complete) return std::nullopt;
    return std::bit_cast<Record>(words);
  }

 private:
  std::atomic<std::uint64_t> version_;
  std::atomic<std::uint64_t> words_[kWords];
};

// Zero-filled memory is an empty ring. Several threads may add records: each takes a number of its own. (Only if a
// thread were suspended in add() until the ring has come round could two write one slot; then one record may be wrong.)
template <typename Record, std::size_t kCapacity>
class Ring {
 public:
  static constexpr std::size_t capacity() { return kCapacity; }

  void add(const Record& record) { write(take(), record); }
  std::uint64_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }  // only a number; write() publishes
  // The same if only one thread at a time adds records: without an atomic read-modify-write, which would wait until all
  // stores before it have left the processor.
  std::uint64_t take_alone() {
    const std::uint64_t number = next_.load(std::memory_order_relaxed);  // as take()
    next_.store(number + 1, std::memory_order_relaxed);
    return number;
  }
  void write(std::uint64_t number, const Record& record) { slot(number).write(number, record); }
  RingSlot<Record>& slot(std::uint64_t number) { return slots_[number % kCapacity]; }

  // How many records were begun.
  std::uint64_t count() const { return next_.load(std::memory_order_relaxed); }  // as take()
  // Nothing if the record is being written or was overwritten.
  std::optional<Record> read(std::uint64_t number) const { return slots_[number % kCapacity].read(number); }

  // Calls visit(number, record) for the records from number `from` on that are still there, oldest first. Returns the
  // number to continue from.
  template <typename Visit>
  std::uint64_t for_each_from(std::uint64_t from, const Visit& visit) const {
    const std::uint64_t end = count();
    std::uint64_t number = end > kCapacity && from < end - kCapacity ? end - kCapacity : from;
    for (; number < end; ++number) {
      if (const auto record = read(number)) visit(number, *record);
    }
    return end;
  }

 private:
  alignas(64) std::atomic<std::uint64_t> next_;
  RingSlot<Record> slots_[kCapacity];
};

}  // namespace lockstep::record
