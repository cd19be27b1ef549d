//! Writes small GGUF and safetensors files in memory, with every field open to damage.

/// A GGUF file to be; `None` in a count or length means the true one.
#[derive(Clone)]
pub(crate) struct GgufFile {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u32,
    pub(crate) tensor_count: Option<u64>,
    pub(crate) key_count: Option<u64>,
    pub(crate) keys: Vec<(String, Vec<u8>)>,
    pub(crate) tensors: Vec<GgufTensor>,
    /// Where the data really starts: the next multiple of this.
    pub(crate) alignment: usize,
    pub(crate) data: Vec<u8>,
}

/// A tensor's line. `dims` are in ggml's order, innermost first.
#[derive(Clone)]
pub(crate) struct GgufTensor {
    pub(crate) name: Vec<u8>,
    pub(crate) name_len: Option<u64>,
    pub(crate) rank: Option<u32>,
    pub(crate) dims: Vec<u64>,
    pub(crate) ggml_type: u32,
    pub(crate) offset: u64,
}

impl GgufTensor {
    pub(crate) fn new(name: &str, dims: &[u64], ggml_type: u32, offset: u64) -> Self {
        let name = name.as_bytes().to_vec();
        GgufTensor { name, name_len: None, rank: None, dims: dims.to_vec(), ggml_type, offset }
    }
}

/// ggml's and GGUF's numbers that the tests use.
pub(crate) mod number {
    pub(crate) const F32: u32 = 0;
    pub(crate) const F16: u32 = 1;
    pub(crate) const Q4_0: u32 = 2;
    pub(crate) const Q8_0: u32 = 8;
    pub(crate) const Q4_K: u32 = 12;
    pub(crate) const IQ4_XS: u32 = 23;
    pub(crate) const VALUE_U8: u32 = 0;
    pub(crate) const VALUE_U32: u32 = 4;
    pub(crate) const VALUE_F32: u32 = 6;
    pub(crate) const VALUE_BOOL: u32 = 7;
    pub(crate) const VALUE_STRING: u32 = 8;
    pub(crate) const VALUE_ARRAY: u32 = 9;
}

/// A value: type, then the bytes as they are.
pub(crate) fn value(value_type: u32, bytes: &[u8]) -> Vec<u8> {
    [&value_type.to_le_bytes(), bytes].concat()
}

pub(crate) fn string_value(text: &str) -> Vec<u8> {
    value(number::VALUE_STRING, &string(text))
}

/// An array: element type and count, then the elements' bytes as they are.
pub(crate) fn array_value(element_type: u32, count: u64, bytes: &[u8]) -> Vec<u8> {
    value(number::VALUE_ARRAY, &[&element_type.to_le_bytes()[..], &count.to_le_bytes(), bytes].concat())
}

pub(crate) fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// Bytes that differ from their neighbours.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

impl GgufFile {
    /// A valid file: a few keys of each kind, and four tensors with gaps of padding between them.
    pub(crate) fn sample() -> Self {
        let tokens = [string("<s>"), string("é"), string("")].concat();
        let scores: Vec<u8> = [0.0_f32, -1.5, -2.0].iter().flat_map(|score| score.to_le_bytes()).collect();
        let keys = [
            ("general.architecture", string_value("llama")),
            ("general.alignment", value(number::VALUE_U32, &32_u32.to_le_bytes())),
            ("llama.attention.layer_norm_rms_epsilon", value(number::VALUE_F32, &1e-5_f32.to_le_bytes())),
            ("tokenizer.ggml.add_bos_token", value(number::VALUE_BOOL, &[1])),
            ("tokenizer.ggml.tokens", array_value(number::VALUE_STRING, 3, &tokens)),
            ("tokenizer.ggml.scores", array_value(number::VALUE_F32, 3, &scores)),
        ];
        let tensors = vec![
            GgufTensor::new("token_embd.weight", &[32, 3], number::Q4_0, 0), // 54 bytes
            GgufTensor::new("output_norm.weight", &[4], number::F32, 64),    // 16 bytes
            GgufTensor::new("blk.0.attn_q.weight", &[5, 2], number::F16, 96), // 20 bytes
            GgufTensor::new("blk.0.ffn_up_exps.weight", &[256, 2, 2], number::Q4_K, 128), // 576 bytes
        ];
        GgufFile {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            key_count: None,
            keys: keys.map(|(key, value)| (key.to_owned(), value)).to_vec(),
            tensors,
            alignment: 32,
            data: pattern(128 + 576),
        }
    }

    pub(crate) fn set_key(&mut self, key: &str, value: Vec<u8>) {
        self.keys.retain(|(name, _)| name != key);
        self.keys.push((key.to_owned(), value));
    }

    pub(crate) fn header(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            out.extend(string(key));
            out.extend(value);
        }
        for tensor in &self.tensors {
            out.extend(tensor.name_len.unwrap_or(tensor.name.len() as u64).to_le_bytes());
            out.extend(&tensor.name);
            out.extend(tensor.rank.unwrap_or(tensor.dims.len() as u32).to_le_bytes());
            out.extend(tensor.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            out.extend(tensor.ggml_type.to_le_bytes());
            out.extend(tensor.offset.to_le_bytes());
        }
        out
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(&self.data);
        out
    }
}

/// A safetensors file of this header text and data.
pub(crate) fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// The header of a valid safetensors file with 44 bytes of data.
pub(crate) const SAFETENSORS_HEADER: &str = r#"{"__metadata__":{"format":"pt"},
    "norm":{"dtype":"F32","shape":[3],"data_offsets":[24,36]},
    "proj":{"dtype":"BF16","shape":[4,3],"data_offsets":[0,24]},
    "ids":{"dtype":"I64","shape":[],"data_offsets":[36,44]}}"#;

/// Every part must be in the message, which must be one line of bearable length.
pub(crate) fn assert_message(case: &str, message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{case}: {message:?} doesn't say {part:?}");
    }
    assert!(message.len() < 500 && !message.contains('\n'), "{case}: {message:?}");
}
