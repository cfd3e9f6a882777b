#include <lockstep/communicator/registered_memory.h>

#include <utility>

#include "communicator/registration.h"

namespace lockstep {

RegisteredMemory::RegisteredMemory(std::shared_ptr<detail::Registration> registration)
    : registration_(std::move(registration)), data_(registration_->data()), size_(registration_->size()) {}

RegisteredMemory::~RegisteredMemory() = default;

}  // namespace lockstep
