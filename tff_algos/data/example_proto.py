"""`Example`: the protocol buffer `tf.train.Example`, without TensorFlow.

Field numbers and types are those of tensorflow/core/example/{example,feature}
.proto, so both serialize to the same bytes. It has its own descriptor pool,
because TensorFlow registers these names in the default one.
"""

from typing import Any

from google.protobuf import (
  descriptor_pb2,
  descriptor_pool,
  message_factory,
  text_format,
)

_FILE = """
name: "example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 label: LABEL_OPTIONAL oneof_index: 0
    type: TYPE_MESSAGE type_name: ".tensorflow.BytesList" }
  field { name: "float_list" number: 2 label: LABEL_OPTIONAL oneof_index: 0
    type: TYPE_MESSAGE type_name: ".tensorflow.FloatList" }
  field { name: "int64_list" number: 3 label: LABEL_OPTIONAL oneof_index: 0
    type: TYPE_MESSAGE type_name: ".tensorflow.Int64List" } }
message_type { name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED
    type: TYPE_MESSAGE type_name: ".tensorflow.Features.FeatureEntry" }
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL
      type: TYPE_MESSAGE type_name: ".tensorflow.Feature" } } }
message_type { name: "Example"
  field { name: "features" number: 1 label: LABEL_OPTIONAL
    type: TYPE_MESSAGE type_name: ".tensorflow.Features" } }
"""

_pool = descriptor_pool.DescriptorPool()
_pool.Add(text_format.Parse(_FILE, descriptor_pb2.FileDescriptorProto()))

# Protobuf creates the class at run time: type checkers cannot see its fields.
Example: Any = message_factory.GetMessageClass(
  _pool.FindMessageTypeByName('tensorflow.Example')
)
