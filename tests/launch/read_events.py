#!/usr/bin/env python3
"""Reads an event file of TensorBoard with Google's protobuf, and prints one JSON object for each event.

read_events.py FILE. Exit code 1 if a checksum or a message is wrong, 77 if there is no protobuf.
The few messages are declared here as tensorflow/core/util/event.proto and framework/summary.proto do.
"""
import json
import struct
import sys

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    print("needs google.protobuf (Debian: python3-protobuf)")
    sys.exit(77)

Field = descriptor_pb2.FieldDescriptorProto


def declare():
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="tensorflow", syntax="proto3")

    def message(name, fields, parent=None):
        added = parent.nested_type.add() if parent else file.message_type.add()
        added.name = name
        for number, field, kind, of in fields:
            label = Field.LABEL_REPEATED if of and of.endswith("*") else Field.LABEL_OPTIONAL
            added.field.add(name=field, number=number, type=kind, label=label, type_name=(of or "").rstrip("*") or None)
        return added

    summary = message("Summary", [(1, "value", Field.TYPE_MESSAGE, ".tensorflow.Summary.Value*")])
    message("Value", [(1, "tag", Field.TYPE_STRING, None), (2, "simple_value", Field.TYPE_FLOAT, None)], summary)
    message("SessionLog", [(1, "status", Field.TYPE_INT32, None)])
    message("Event", [(1, "wall_time", Field.TYPE_DOUBLE, None), (2, "step", Field.TYPE_INT64, None),
                      (3, "file_version", Field.TYPE_STRING, None),
                      (5, "summary", Field.TYPE_MESSAGE, ".tensorflow.Summary"),
                      (7, "session_log", Field.TYPE_MESSAGE, ".tensorflow.SessionLog")])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    event = pool.FindMessageTypeByName("tensorflow.Event")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(event)
    return message_factory.MessageFactory(pool).GetPrototype(event)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    position = 0
    while position < len(data):
        header = data[position:position + 8]
        (length,) = struct.unpack("<Q", header)
        (of_header,) = struct.unpack("<I", data[position + 8:position + 12])
        record = data[position + 12:position + 12 + length]
        (of_record,) = struct.unpack("<I", data[position + 12 + length:position + 16 + length])
        if of_header != masked(header) or of_record != masked(record):
            sys.exit(f"a checksum of the record at byte {position} is wrong")
        yield record
        position += 16 + length


def main():
    event_class = declare()
    for record in records(open(sys.argv[1], "rb").read()):
        event = event_class.FromString(record)
        if event.SerializeToString(deterministic=True) != record:
            sys.exit("protobuf encodes this event in another way")
        print(json.dumps({"wall_time": event.wall_time, "step": event.step, "version": event.file_version,
                          "restart": event.session_log.status == 1,
                          "scalars": {value.tag: value.simple_value for value in event.summary.value}}))


main()
