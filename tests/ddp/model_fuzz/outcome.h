// What became of a case on one rank, and on all.
#pragma once

#include <string>
#include <vector>

namespace lockstep::fuzz {

struct Outcome {
  enum class Kind {
    fine,
    wrong,       // a result differs
    refused,     // DDP threw
    hung,        // no result before the deadline
    crashed,     // a process ended
    invalid,     // the program written by hand failed: a defect of the fuzzer
    collateral,  // another rank failed
  };
  Kind kind = Kind::fine;
  std::string check;   // wrong: which comparison failed; refused: the message without numbers
  std::string detail;  // what differs, by how much, where

  // Two failures of one kind and check are taken for the same while shrinking.
  bool same_failure(const Outcome& other) const { return kind == other.kind && check == other.check; }
};
const char* name_of(Outcome::Kind kind);

// One line, and back.
std::string to_text(const Outcome& outcome);
Outcome outcome_from_text(const std::string& text);

// The outcome that tells most about the failure, of all ranks'.
Outcome worst_of(const std::vector<Outcome>& outcomes);

// The part of an error's message by which failures are counted: without numbers, names and what follows the first
// sentence.
std::string category_of_message(const std::string& message);

}  // namespace lockstep::fuzz
