/* cases.c -- tables of small nets; see net.h for the language. */
#include "support/cases.h"

const net_case operator_cases[] = {
    {"a = x 5; y = linear a out=4", 3, 0},
    {"a = x 3,6; y = linear a out=5 no_bias=1", 2, 0},
    {"a = x 3,4; b = x 4,5; y = matmul a b", 2, 0},
    {"a = x 2,3,4; b = x 2,4,2; y = matmul a b", 2, 0},
    {"a = x 3,5,6; y = conv2d a out=4 kernel=3,3 pad=1,1", 2, 0},
    {"a = x 4,7,6; y = conv2d a out=6 kernel=3,2 stride=2,1 pad=1,0 groups=2 no_bias=1", 2, 0},
    {"a = x 3,6,6; y = conv2d a out=3 kernel=3,3 stride=2,2 pad=1,1 groups=3", 1, 0},
    {"a = x 3,4,2; y = batch_norm a", 3, 0},
    {"a = x 4; y = batch_norm a eps=0.01", 6, 0},
    {"a = x 3,6; y = layer_norm a", 2, 0},
    {"a = x 3,4; y = relu a", 3, 0},
    {"a = x 3,4; y = gelu a", 3, 0},
    {"a = x 3,4; y = selu a", 3, 0},
    {"a = x 3,4; y = tanh a", 3, 0},
    {"a = x 3,4; y = sigmoid a", 3, 0},
    {"a = x 3,4; y = silu a", 3, 0},
    {"a = x 3,4; y = gelu_exact a", 3, 0},
    {"a = x 3,4; y = relu6 a", 3, 0},
    {"a = x 3,4; y = hardswish a", 3, 0},
    {"a = x 3,4; y = hardsigmoid a", 3, 0},
    {"a = x 3,4; y = leaky_relu a", 3, 0},
    {"a = x 3,4; y = leaky_relu a slope=0.3", 3, 0},
    {"a = x 3,4; y = elu a", 3, 0},
    {"a = x 3,4; y = elu a alpha=0.4", 3, 0},
    {"a = x 3,4; b = x 3,4; y = mul a b", 2, 0},
    {"a = x 3,4,5; b = x 3,1,1; y = mul a b", 2, 0},
    {"a = x 3,4; b = x 4; y = mul a b", 2, 0},
    {"a = x 3,4; b = x 3,4; y = subtract a b", 2, 0},
    {"a = x 3,4,5; b = x 4,1; y = subtract a b", 2, 0},
    {"a = x 3,4; b = x 1; y = subtract a b", 2, 0},
    {"a = x 3,6; y = softmax a", 2, 0},
    {"a = x 3,6; y = rms_norm a", 2, 0},
    {"a = x 5; y = rms_norm a eps=0.01", 3, 0},
    {"a = x 6,2,3; y = group_norm a groups=2", 2, 0},
    {"a = x 4; y = group_norm a groups=1", 3, 0},
    {"a = x 4,8; y = rope a heads=2", 2, 0},
    {"a = x 5,18; y = rope a heads=3 rotated_heads=2 rotated_width=4 base=50", 2, 0},
    {"a = x 5; y = stochastic_depth a p=0.4", 6, 0},
    {"a = x 5,5; y = dropout a p=0.4", 3, 0},
    {"a = x 5,5; y = alpha_dropout a p=0.3", 3, 0},
    {"a = x 2,6,6; y = max_pool a kernel=2,2", 2, 0},
    {"a = x 2,7,5; y = max_pool a kernel=3,3 stride=2,2 pad=1,1", 2, 0},
    {"a = x 2,6,6; y = avg_pool a kernel=2,3 stride=2,2", 2, 0},
    {"a = x 2,5,5; y = avg_pool a kernel=3,3 stride=1,2 pad=1,1 count_valid=1", 2, 0},
    {"a = x 3,4,5; y = global_pool a", 2, 0},
    {"a = x 3,4; b = x 3,4; y = add a b", 2, 0},
    {"a = x 4,2; b = x 1,2; c = x 3,2; y = concat a b c", 2, 0},
    {"a = x 3,4; b = x 3,2; y = concat a b axis=1", 2, 0},
    {"a = x 2,3,1; b = x 2,3,4; y = concat a b axis=2", 2, 0},
    {"a = x 6,3; y = slice a from=2 to=5", 2, 0},
    {"a = x 5; y = slice a to=1", 3, 0},
    {"a = x 3,5,2; y = slice a axis=1 from=1 to=4", 2, 0},
    {"a = x 3,5; y = slice a axis=1 from=4 to=5", 2, 0},
    {"a = x 4,3; y = select a index=-1", 2, 0},
    {"a = x 2,3,4; y = select a axis=1 index=1", 2, 0},
    {"a = x 3,4; y = transpose a order=1,0", 2, 0},
    {"a = x 2,3,2,2; y = transpose a order=2,0,3,1", 2, 0},
    {"a = x 3,4; y = reshape a shape=2,-1,3", 2, 0},
    {"a = x 3,2; y = pad a before=1,0 after=0,2 value=0.5", 2, 0},
    {"a = x 2,2,3; y = pad a before=0,1,1 after=1,1", 2, 0},
    {"a = x 3,2,2; y = flatten a", 2, 0},
    {"t = ids 5 0 6; y = embedding t vocab=7 width=4", 3, 0},
    {"t = ids 4 0 4; y = embedding t vocab=5 width=6 positions=6", 2, 0},
    {"a = x 5,12; y = attention a heads=2", 2, 0},
    {"a = x 5,18; y = attention a heads=3 causal=1", 2, 0},
    {"a = x 6,12; n = ids - 0 6; y = attention a n heads=2", 4, 0},
    {"a = x 6,12; n = ids - 1 6; y = attention a n heads=1 causal=1", 4, 0},
    {"q = x 4,6; k = x 5,12; y = cross_attention q k heads=2", 2, 0},
    {"q = x 5,4; k = x 3,8; n = ids - 0 3; y = cross_attention q k n heads=1", 4, 0},
    {"q = x 4,6; k = x 5,6; v = x 5,6; y = sdpa q k v heads=2", 2, 0},
    {"q = x 5,12; k = x 5,6; v = x 5,6; y = sdpa q k v heads=4 kv_heads=2 causal=1", 2, 0},
    {"q = x 7,8; k = x 7,2; v = x 7,2; n = ids - 0 7; "
     "y = sdpa q k v n heads=4 kv_heads=1 causal=1 window=3 scale=0.4",
     4, 0},
    {"q = x 4,4; k = x 3,4; v = x 3,4; m = x 2,4,3; y = sdpa q k v m heads=2", 2, 0},
    {"q = x 4,4; k = x 4,2; v = x 4,2; m = x 2,4,4; n = ids - 0 4; "
     "y = sdpa q k v m n heads=2 kv_heads=1 causal=1 window=2",
     4, 0},
    {"q = x 4,4; k = x 3,4; v = x 3,4; m = ids 4,3 0 1; y = sdpa q k v m heads=2", 3, 0},
    {"q = x 4,4; k = x 3,4; v = x 3,4; m = data 3; y = sdpa q k v m heads=1", 2, 0},
    {"a = x 4,3; y = lstm a hidden=5", 2, 0},
    {"a = x 4,3; y = lstm a hidden=5 projection=2", 2, 0},
    {"a = x 5,3; y = reverse_time a", 2, 0},
    {"a = x 5,3; n = ids - 0 5; y = reverse_time a n", 5, 0},
    {"a = x 5,3; y = mean_time a", 2, 0},
    {"a = x 5,3; n = ids - 0 5; y = mean_time a n", 5, 0},
    {"a = x 5,3; y = last_time a", 2, 0},
    {"a = x 5,3; n = ids - 0 5; y = last_time a n", 5, 0},
    {"a = x 5; t = ids - 0 4; y = cross_entropy a t", 4, 0},
    {"a = x 6,5; t = ids 6 -1 4; y = cross_entropy a t label_smoothing=0.2", 2, 0},
    {"a = x 6,4; t = ids 6 -1 3; y = cross_entropy a t has_ignore=1 ignore_index=2", 3, 0},
    {"a = x 5; t = data 5; y = mse a t", 4, 0},
    {"a = x 3,1; t = data 3; y = mse a t", 2, 0},
    {"a = x 7; t = data 7; y = smooth_l1 a t beta=4", 3, 0},
    {"a = x 6; t = share 6; y = bce a t", 4, 0},
    {"a = x 3,5; t = data 3,5; y = cosine a t", 2, 0},
};
const size_t n_operator_cases = sizeof operator_cases / sizeof operator_cases[0];

const net_case network_cases[] = {
    /* Matrices: sizes around the vector lengths, one row, many rows. */
    {"a = x 1; y = linear a out=1", 1, 0},
    {"a = x 17; y = linear a out=33", 1, 0},
    {"a = x 64; y = linear a out=48", 16, 0},
    {"a = x 300; y = linear a out=130", 5, 0},
    {"a = x 13,40; y = linear a out=31", 3, 0},
    /* Weights of more than 4 MB, which may be padded, or have their gradient made in parts. */
    {"a = x 1021; y = linear a out=1030", 2, 0},
    {"a = x 1024; b = linear a out=1025; y = gelu b", 2, 0},
    /* Few rows, long rows of weights: odd numbers of both, gradients that are added. */
    {"a = x 272; y = linear a out=13", 7, 0},
    {"a = x 1040; b = linear a out=300; c = linear a out=300; y = add b c", 5, 0},
    {"a = x 1024; b = linear a out=20; y = gelu b", 33, 0},
    {"a = x 3,16; y = lstm a hidden=256", 2, 1e-4},
    {"a = x 3,16; y = lstm a hidden=1024 projection=16", 3, 1e-4},
    {"a = x 3,17,33; b = x 3,33,20; y = matmul a b", 3, 0},
    {"a = x 70,50; b = x 50,90; y = matmul a b", 1, 0},
    {"a = x 19,19; b = matmul a a; c = matmul b a; y = add c a", 2, 0},
    {"a = data 2,2,5,4; b = x 2,2,4,3; y = matmul a b", 2, 0},
    {"a = x 2,5,4; b = data 2,4,3; y = matmul a b", 2, 0},
    /* Convolutions: channels that fill no vector, and those that do. */
    {"a = x 3,9,9; y = conv2d a out=5 kernel=3,3 pad=1,1", 1, 0},
    {"a = x 7,8,8; y = conv2d a out=13 kernel=3,3 stride=2,2 pad=1,1", 3, 1e-4},
    {"a = x 16,8,8; y = conv2d a out=32 kernel=3,3 pad=1,1 no_bias=1", 4, 1e-4},
    {"a = x 24,7,5; y = conv2d a out=40 kernel=1,1", 3, 1e-4},
    {"a = x 16,9,9; y = conv2d a out=8 kernel=1,1 stride=2,2 no_bias=1", 2, 1e-4},
    {"a = x 5,12,12; y = conv2d a out=6 kernel=5,5", 2, 1e-4},
    {"a = x 6,10,11; y = conv2d a out=7 kernel=1,7 pad=0,3; z = conv2d y out=9 kernel=7,1 pad=3,0",
     2, 1e-4},
    {"a = x 16,6,6; y = conv2d a out=16 kernel=3,3 pad=1,1 groups=16", 3, 1e-4},
    {"a = x 12,6,6; y = conv2d a out=18 kernel=3,3 pad=1,1 groups=3", 2, 1e-4},
    {"a = data 3,16,16; y = conv2d a out=20 kernel=3,3 pad=1,1; z = relu y", 2, 1e-4},
    {"a = x 64,2,2; y = conv2d a out=64 kernel=3,3 pad=1,1", 2, 1e-4},
    /* Fused groups: bias, activation, normalisation, residual. */
    {"a = x 5,7,7; b = conv2d a out=9 kernel=3,3 pad=1,1; y = relu b", 3, 1e-4},
    {"a = x 16,8,8; b = conv2d a out=24 kernel=3,3 pad=1,1; y = relu b", 2, 1e-4},
    {"a = x 6,6,6; b = conv2d a out=10 kernel=3,3 pad=1,1 no_bias=1; c = batch_norm b; y = relu c",
     3, 1e-4},
    {"a = x 16,6,6; b = conv2d a out=16 kernel=1,1 no_bias=1; c = batch_norm b; y = relu c", 4,
     1e-4},
    {"a = x 16,5,5; b = x 16,5,5; c = batch_norm a; d = add c b; y = relu d", 3, 1e-4},
    {"a = x 11,5,5; b = x 11,5,5; c = batch_norm a; d = add b c; y = relu d", 3, 1e-4},
    {"a = x 16,6,6; b = conv2d a out=16 kernel=3,3 pad=1,1; c = add b a; y = relu c", 2, 1e-4},
    {"a = x 33; b = linear a out=50; y = relu b", 7, 0},
    {"a = x 33; b = linear a out=50; y = gelu b", 7, 0},
    {"a = x 6,24; b = linear a out=24; y = add b a", 3, 0},
    {"a = x 6,24; b = linear a out=24; c = dropout b p=0.1; y = add a c", 3, 0},
    {"a = x 20; b = linear a out=30; c = tanh b; d = linear c out=30; e = selu d; "
     "y = alpha_dropout e p=0.1",
     4, 0},
    {"a = x 18; b = linear a out=12; y = sigmoid b; keep b", 3, 0},
    {"a = x 16,6,6; b = conv2d a out=13 kernel=3,3 pad=1,1; c = sigmoid b; "
     "y = conv2d c out=5 kernel=3,3",
     2, 1e-4},
    {"a = x 8,5,5; b = relu a; y = max_pool b kernel=2,2", 3, 0},
    {"a = x 12; b = batch_norm a; y = relu b", 8, 1e-4},
    /* Sweeps of odd sizes, and of vector sizes. */
    {"a = x 1037; y = relu a", 1, 0},
    {"a = x 1037; y = gelu a", 3, 0},
    {"a = x 7,11,13; y = selu a", 3, 0},
    {"a = x 1037; y = tanh a", 2, 0},
    {"a = x 1037; y = sigmoid a", 2, 0},
    {"a = x 1037; y = silu a", 3, 0},
    {"a = x 1037; y = gelu_exact a", 3, 0},
    {"a = x 1037; y = leaky_relu a slope=0.2", 2, 0},
    {"a = x 1037; y = elu a alpha=1.5", 2, 0},
    /* Wide inputs, so that functions made of straight lines are met on each of them. */
    {"a = x 300; b = linear a out=77; y = relu6 b", 3, 0},
    {"a = x 77; b = linear a out=77; y = hardswish b", 3, 0},
    {"a = x 77; b = linear a out=77; y = hardsigmoid b", 3, 0},
    {"a = x 77; b = linear a out=77; c = gelu_exact b; d = linear c out=77; y = silu d", 3, 0},
    {"a = x 1037; y = dropout a p=0.25", 3, 0},
    {"a = x 3,5,7; y = dropout a p=0.5", 5, 0},
    {"a = x 16,6,6; b = conv2d a out=16 kernel=3,3 pad=1,1; y = dropout b p=0.5", 2, 1e-4},
    {"a = x 517; y = alpha_dropout a p=0.05", 3, 0},
    {"a = x 7,130; y = softmax a", 3, 0},
    {"a = x 3,5,33; y = softmax a", 2, 0},
    {"a = x 7,130; y = rms_norm a", 3, 0},
    {"a = x 3,5,64; y = rms_norm a eps=1e-6", 2, 0},
    {"a = x 12,5,7; y = group_norm a groups=3", 3, 0},
    {"a = x 6,40; y = group_norm a groups=6 eps=1e-3", 2, 0},
    {"a = x 130,96; y = rope a heads=4", 3, 0},
    {"a = x 70,66; y = rope a heads=3 rotated_width=10", 2, 0},
    {"a = x 3,5,7; y = stochastic_depth a p=0.5", 7, 0},
    {"a = x 7,130; y = layer_norm a", 3, 0},
    {"a = x 5,64; y = layer_norm a eps=1e-6", 2, 0},
    {"a = x 9,8,8; y = max_pool a kernel=3,3 stride=2,2", 3, 0},
    {"a = x 16,8,8; y = max_pool a kernel=2,2", 2, 0},
    {"a = x 16,9,9; y = max_pool a kernel=3,3 stride=2,2 pad=1,1", 2, 0},
    {"a = x 24,8,8; y = avg_pool a kernel=3,3 stride=1,1 pad=1,1", 2, 0},
    {"a = x 5,8,6; y = avg_pool a kernel=2,2 count_valid=1", 3, 0},
    {"a = x 19,7,7; y = global_pool a", 3, 0},
    {"a = x 64,4,4; y = global_pool a", 2, 0},
    /* Two inputs, the second repeated over any dimensions; in blocks of channels, too. */
    {"a = x 1037; b = x 1037; y = mul a b", 3, 0},
    {"a = x 10; y = mul a a", 3, 0},
    {"a = x 10; y = subtract a a", 3, 0},
    {"a = x 23,70; b = x 70; y = mul a b", 3, 0},
    {"a = x 600,3; b = x 3; y = mul a b", 2, 0},
    {"a = x 5,3,1000; b = x 3,1; y = mul a b", 2, 0},
    {"a = x 2,3,5,7; b = x 3,1,7; y = mul a b", 2, 0},
    {"a = x 2,3,5,7; b = x 2,1,5,1; y = subtract a b", 2, 0},
    {"a = x 9,40; b = x 1; y = subtract a b", 2, 0},
    {"a = x 9,40; b = data 9,1; y = mul a b", 2, 0},
    {"a = data 9,40; b = x 9,1; y = mul a b", 2, 0},
    {"a = x 9,40; b = linear a out=40; c = subtract a b; d = mul c b; y = add d a", 3, 0},
    {"a = x 16,9,9; b = conv2d a out=32 kernel=3,3 pad=1,1; c = avg_pool b kernel=9,9; "
     "d = conv2d c out=32 kernel=1,1; e = hardsigmoid d; f = mul b e; "
     "y = conv2d f out=16 kernel=1,1",
     2, 1e-4},
    {"a = x 16,6,6; b = conv2d a out=13 kernel=3,3 pad=1,1; c = conv2d a out=13 kernel=3,3 "
     "pad=1,1; d = mul b c; e = avg_pool d kernel=6,6; f = subtract d e; y = relu f",
     2, 1e-4},
    {"a = x 16,6,6; b = conv2d a out=16 kernel=3,3 pad=1,1; c = conv2d b out=1 kernel=1,1; "
     "d = sigmoid c; e = mul b d; y = conv2d e out=16 kernel=1,1",
     2, 1e-4},
    {"a = x 9,24; b = linear a out=40; c = silu b; d = linear a out=40; e = mul c d; "
     "y = linear e out=24",
     3, 1e-4},
    /* Blocks of networks: residual branches, rotated queries and keys. */
    {"a = x 16,6,6; b = conv2d a out=16 kernel=3,3 pad=1,1; c = group_norm b groups=4; d = silu c; "
     "e = conv2d d out=16 kernel=3,3 pad=1,1; f = stochastic_depth e p=0.5; y = add f a",
     6, 1e-4},
    {"a = x 9,24; n = rms_norm a; q = linear n out=72 no_bias=1; "
     "r = rope q heads=9 rotated_heads=6; m = attention r heads=3 causal=1; "
     "o = linear m out=24 no_bias=1; y = add a o",
     3, 1e-4},
    {"a = x 9,24; b = softmax a; c = rms_norm a; d = rope a heads=2; e = add b c; y = add d e", 3,
     0},
    {"a = x 9,24; b = linear a out=24; c = rope b heads=2; d = softmax c; "
     "e = stochastic_depth d p=0.3; f = linear e out=24; y = softmax f",
     4, 1e-4},
    /* Values used more than once, several inputs, several outputs. */
    {"a = x 10; y = add a a", 3, 0},
    {"a = x 10; b = linear a out=10; c = add a b; d = linear c out=10; y = add c d", 3, 0},
    {"a = x 12; b = linear a out=8; c = linear a out=8; d = linear a out=8; e = add b c; y = add e "
     "d",
     3, 0},
    {"a = x 9; b = tanh a; c = sigmoid a; d = relu a; e = add b c; y = add e d", 4, 0},
    /* A gradient of three or more terms, of nodes that are fused with later ones. */
    {"a = x 12; o = linear a out=12; b = linear o out=8; c = linear o out=8; d = linear o out=8; "
     "e = relu b; f = add c d; y = add e f",
     3, 0},
    {"a = x 12; o = linear a out=12; p = linear a out=12; b = linear p out=12; c = linear o "
     "out=12; "
     "d = add o b; e = linear o out=12; f = add c d; y = add e f",
     3, 0},
    /* Long sums that are added to a gradient; where this net is cut, layouts differ. */
    {"a = x 8,6,6; b = conv2d a out=16 kernel=3,3 pad=1,1; c = linear b out=700; "
     "d = linear b out=700; y = add c d",
     2, 1e-4},
    {"a = x 8,6,6; b = conv2d a out=16 kernel=3,3 pad=1,1; c = linear b out=700; "
     "d = relu b; e = linear d out=700; y = add c e",
     2, 1e-4},
    {"a = x 8,5,5; b = conv2d a out=7 kernel=1,1; c = conv2d a out=16 kernel=3,3 pad=1,1; "
     "d = max_pool a kernel=3,3 stride=1,1 pad=1,1; y = concat b c d a",
     3, 1e-4},
    /* Many inputs, some of them more than once, as in a dense block. */
    {"a = x 3,4; c = x 3,1; b = tanh a; y = concat a b c a b a b c c a b a b c a b a b c a b a b "
     "a b a b a b a b a b a b c axis=1",
     2, 0},
    {"a = x 16,3,3; b = conv2d a out=16 kernel=1,1; c = relu b; d = tanh b; e = gelu c; f = selu "
     "d; "
     "g = sigmoid e; h = tanh f; i = relu g; j = gelu h; y = concat a b c d e f g h i j",
     2, 1e-4},
    {"a = x 16,4,4; b = relu a; c = conv2d b out=16 kernel=3,3 pad=1,1; d = relu c; "
     "e = concat b d; f = conv2d e out=8 kernel=1,1; y = concat e f",
     2, 1e-4},
    {"a = x 16,6,6; b = conv2d a out=16 kernel=3,3 pad=1,1; c = relu b; y = add c b", 2, 1e-4},
    {"a = x 6; b = linear a out=5; y = tanh b; keep a; keep b", 2, 0},
    {"a = x 3,4; b = flatten a; c = relu b; y = flatten c; keep b", 2, 0},
    {"a = x 8; b = relu a; y = linear b out=6; keep b", 3, 0},
    {"a = x 8; b = x 6; c = linear a out=3; y = tanh b", 3, 0}, /* c is not used */
    {"a = x 8; b = dropout a p=0.3; c = dropout a p=0.3; y = add b c", 3, 0},
    /* Sequences. */
    {"t = ids 11 0 99; y = embedding t vocab=100 width=37 positions=12", 3, 0},
    {"a = x 17,96; y = attention a heads=4 causal=1", 3, 0},
    {"a = x 33,51; y = attention a heads=1", 2, 0},
    {"a = x 13,48; n = ids - 0 13; y = attention a n heads=2", 5, 0},
    {"a = x 64,96; y = attention a heads=2 causal=1", 2, 0},
    {"q = x 70,24; k = x 13,48; n = ids - 0 13; y = cross_attention q k n heads=3", 5, 0},
    {"q = x 3,16; k = x 67,32; y = cross_attention q k heads=1", 2, 0},
    {"q = data 5,16; k = x 7,32; y = cross_attention q k heads=2", 3, 0},
    {"q = x 5,16; k = data 7,32; y = cross_attention q k heads=2", 3, 0},
    {"a = x 9,16; k = linear a out=32; y = cross_attention a k heads=2", 3, 0},
    {"q = x 70,48; k = x 70,24; v = x 70,24; y = sdpa q k v heads=4 kv_heads=2 causal=1", 2, 0},
    {"q = x 200,32; k = x 200,16; v = x 200,16; "
     "y = sdpa q k v heads=2 kv_heads=1 causal=1 window=37",
     2, 0},
    {"q = x 131,6; k = x 131,6; v = x 131,6; n = ids - 0 131; "
     "y = sdpa q k v n heads=2 causal=1 window=5",
     4, 0},
    {"q = x 70,24; k = x 13,8; v = x 13,8; n = ids - 0 13; y = sdpa q k v n heads=3 kv_heads=1", 5,
     0},
    {"q = x 66,8; k = x 67,8; v = x 67,8; m = x 2,66,67; n = ids - 0 67; y = sdpa q k v m n "
     "heads=2",
     3, 0},
    {"q = x 140,8; k = x 140,4; v = x 140,4; m = x 2,140,140; "
     "y = sdpa q k v m heads=2 kv_heads=1 causal=1 window=9",
     2, 0},
    {"q = x 9,8; k = x 7,8; v = x 7,8; m = ids 2,9,7 0 1; y = sdpa q k v m heads=2", 3, 0},
    {"q = x 9,8; k = x 7,8; v = x 7,8; m = ids 7 0 1; y = sdpa q k v m heads=2", 3, 0},
    {"q = x 9,8; k = x 7,8; v = x 7,8; m = data 9,7; b = tanh m; y = sdpa q k v b heads=2", 3, 0},
    {"q = x 9,8; k = x 7,8; m = x 126; b = tanh q; y = sdpa b k k heads=2; keep m", 3, 0},
    {"q = data 9,8; k = x 7,4; v = data 7,4; y = sdpa q k v heads=2 kv_heads=1", 3, 0},
    {"q = x 9,8; k = data 7,8; v = x 7,8; y = sdpa q k v heads=2", 3, 0},
    {"a = x 9,21; b = slice a from=1 to=8; c = slice a from=2 to=9; y = add b c", 3, 0},
    {"a = x 37,50; b = transpose a order=1,0; c = slice b axis=1 from=3 to=20; "
     "d = slice b axis=1 from=20 to=37; e = add c d; keep b; f = pad e before=2,1 after=0,3; "
     "y = add f f",
     3, 0},
    {"a = x 17,6,5; b = transpose a order=1,2,0; c = reshape b shape=30,-1; d = linear c out=20; "
     "e = select d index=7; f = select d index=-2; y = add e f",
     3, 0},
    {"t = ids 12 0 20; i = reshape t shape=3,4; j = transpose i order=1,0; k = select j index=2; "
     "l = slice t from=2 to=5; y = embedding k vocab=21 width=6; z = embedding l vocab=21 width=6; "
     "s = add y z",
     3, 0},
    {"a = x 16,6,6; b = conv2d a out=16 kernel=3,3 pad=1,1; c = transpose b order=1,2,0; "
     "d = pad b after=0,0,2; e = reshape b shape=96,6; keep c; keep d; y = select e axis=1 index=3",
     2, 1e-4},
    {"a = x 16,6,6; b = conv2d a out=16 kernel=3,3 pad=1,1; c = slice b from=3 to=9; "
     "d = reverse_time b; y = concat b d axis=2; keep c",
     2, 1e-4},
    {"a = x 9,17; y = lstm a hidden=19", 3, 1e-4},
    {"a = x 9,17; y = lstm a hidden=40 projection=19", 3, 1e-4},
    {"a = data 9,17; b = lstm a hidden=16 projection=24; y = lstm b hidden=8 projection=8", 4,
     1e-4},
    {"a = x 7,16; b = lstm a hidden=16; c = add a b; d = lstm c hidden=16; y = add c d", 4, 1e-4},
    {"a = x 9,21; n = ids - 0 9; b = lstm a hidden=16; y = last_time b n", 5, 1e-4},
    {"a = x 9,21; n = ids - 0 9; y = mean_time a n", 5, 0},
    {"a = x 40; t = ids - 0 36; b = linear a out=37; y = cross_entropy b t", 9, 0},
    {"a = x 40; t = data 37; b = linear a out=37; y = mse b t", 9, 0},
    {"a = x 7,16; t = data 7,601; b = linear a out=601; y = mse b t", 2, 0},
    {"a = x 12; t = data -; b = linear a out=1; y = smooth_l1 b t beta=0.5", 5, 0},
    {"a = x 40; t = share 37; b = linear a out=37; y = bce b t", 9, 0},
    {"a = x 7,16; t = data 7,33; b = linear a out=33; y = cosine b t", 5, 0},
    {"a = x 3,8,8; t = share 2,8,8; b = conv2d a out=2 kernel=3,3 pad=1,1; y = bce b t", 3, 0},
    {"a = x 7,16; t = ids 7 -1 256; b = linear a out=257; y = cross_entropy b t "
     "label_smoothing=0.1",
     3, 0},
    /* Chains: what a node rounds, the next one reads; panels of weights and of their gradients. */
    {"a = x 37; b = linear a out=29; c = relu b; d = linear c out=11 no_bias=1; y = gelu d", 5, 0},
    {"a = x 6,32; b = linear a out=48; c = gelu b; d = linear c out=32; y = add d a", 4, 0},
    {"a = x 7,16; b = linear a out=16; c = add b a; d = linear c out=520; y = relu d", 3, 0},
    {"a = x 1024; b = linear a out=1100; c = gelu b; d = linear c out=600; y = tanh d", 9, 0},
    {"a = x 64; b = linear a out=64; c = selu b; d = linear c out=64; e = sigmoid d; f = add e c; "
     "y = relu f",
     33, 0},
    {"a = x 5,40; b = layer_norm a; c = linear b out=40; d = add c a; e = layer_norm d; "
     "y = add e d",
     3, 0},
    {"t = ids 6 0 20; u = ids 6 0 20; e = embedding t vocab=21 width=600 positions=6; "
     "n = layer_norm e; z = linear n out=21; y = cross_entropy z u label_smoothing=0.1",
     3, 0},
    {"a = x 16,4,4; b = conv2d a out=32 kernel=3,3 stride=2,2 pad=1,1; c = relu b; "
     "d = conv2d c out=48 kernel=3,3 pad=1,1; e = relu d; y = conv2d e out=32 kernel=3,3 pad=1,1",
     5, 1e-4},
    {"a = x 150; b = dropout a p=0.3; c = tanh b; y = dropout c p=0.5", 4, 0},
    {"a = x 70,24; b = linear a out=72; c = attention b heads=3 causal=1; d = linear c out=24; "
     "y = add d a",
     2, 0},
    {"a = x 9,8; b = x 70,16; l = ids - 0 70; c = cross_attention a b l heads=2; y = relu c", 3, 0},
    /* Small whole networks: cnn, transformer block, classifier. */
    {"a = data 3,12,12; t = ids - 0 9; b = conv2d a out=16 kernel=3,3 pad=1,1; c = relu b; "
     "d = max_pool c kernel=2,2; e = conv2d d out=24 kernel=3,3 pad=1,1 no_bias=1; "
     "f = batch_norm e; g = relu f; h = global_pool g; i = dropout h p=0.5; j = linear i out=10; "
     "y = cross_entropy j t",
     6, 1e-4},
    {"a = data 3,9,9; t = ids - 0 4; b = conv2d a out=16 kernel=3,3 pad=1,1 no_bias=1; "
     "c = batch_norm b; d = relu c; e = conv2d d out=16 kernel=3,3 pad=1,1 no_bias=1; "
     "f = batch_norm e; g = add f d; h = relu g; i = flatten h; j = linear i out=5; "
     "y = cross_entropy j t",
     4, 1e-4},
    {"t = ids 8 0 20; u = ids 8 -1 20; e = embedding t vocab=21 width=24 positions=8; "
     "n1 = layer_norm e; q = linear n1 out=72; m = attention q heads=3 causal=1; "
     "o = linear m out=24; d1 = dropout o p=0.1; r1 = add e d1; n2 = layer_norm r1; "
     "f = linear n2 out=96; g = gelu f; k = linear g out=24; r2 = add r1 k; n3 = layer_norm r2; "
     "z = linear n3 out=21 no_bias=1; y = cross_entropy z u",
     3, 1e-4},
    {"t = ids 12 0 11; l = ids - 1 6; u = ids 6 -1 11; s = slice t to=6; g = slice t from=6 to=12; "
     "e = embedding s vocab=12 width=16; f = lstm e hidden=16; r = reverse_time e l; "
     "b = lstm r hidden=16; v = reverse_time b l; c = concat f v axis=1; k = linear c out=32; "
     "d = embedding g vocab=12 width=16; h = lstm d hidden=16; m = cross_attention h k l heads=1; "
     "o = concat h m axis=1; p = lstm o hidden=16; z = linear p out=12; y = cross_entropy z u",
     4, 1e-4},
    {"t = ids 6 0 11; l = ids - 1 6; u = ids - 0 2; e = embedding t vocab=12 width=16; "
     "h1 = lstm e hidden=16; r1 = add e h1; d = dropout r1 p=0.2; m = mean_time d l; "
     "z = linear m out=3; y = cross_entropy z u",
     4, 1e-4},
};
const size_t n_network_cases = sizeof network_cases / sizeof network_cases[0];
