"""Names that a Keras file may give without the user's consent: what they stand for computes, and does nothing else.

An allow list: each name was looked at, and what is not here needs --allow_unsafe_deserialization or --custom_objects. Of Keras 2.14 and
3, and of TensorFlow 2.14. Left out on purpose: what runs code that the file holds (Lambda, DropoutWrapper), loads another file
(TFSMLayer, TorchModuleWrapper), takes functions (map_fn, while_loop), reads or writes files (io.write_file, decode_proto,
fixed_unigram_candidate_sampler, ImmutableConst), and what changes TensorFlow or prints.
"""

# Layers and models.
LAYERS = frozenset(
    """
    AbstractRNNCell Activation ActivityRegularization Add AddLoss AddMetric AdditiveAttention AlphaDropout Attention Average
    AveragePooling1D AveragePooling2D AveragePooling3D AvgPool1D AvgPool2D AvgPool3D BatchNormalization BatchNormalizationV1
    BatchNormalizationV2 Bidirectional CategoryEncoding CenterCrop Concatenate Conv1D Conv1DTranspose Conv2D Conv2DTranspose Conv3D
    Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D Convolution1D Convolution1DTranspose Convolution2D Convolution2DTranspose
    Convolution3D Convolution3DTranspose Cropping1D Cropping2D Cropping3D CuDNNGRU CuDNNLSTM Dense DepthwiseConv1D DepthwiseConv2D
    DeviceWrapper Discretization Dot Dropout ELU EinsumDense Embedding Flatten GRU GRUCell GRUCellV1 GRUCellV2 GRUV1 GRUV2
    GaussianDropout GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D GlobalAvgPool1D GlobalAvgPool2D
    GlobalAvgPool3D GlobalMaxPool1D GlobalMaxPool2D GlobalMaxPool3D GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    GroupNormalization HashedCrossing Hashing Identity Input InputLayer InputSpec IntegerLookup LSTM LSTMCell LSTMCellV1 LSTMCellV2
    LSTMV1 LSTMV2 Layer LayerNormalization LeakyReLU LocallyConnected1D LocallyConnected2D Masking MaxPool1D MaxPool2D MaxPool3D
    MaxPooling1D MaxPooling2D MaxPooling3D Maximum Minimum MultiHeadAttention Multiply Normalization PReLU Permute RNN
    RandomBrightness RandomContrast RandomCrop RandomFlip RandomFourierFeatures RandomHeight RandomRotation RandomTranslation
    RandomWidth RandomZoom ReLU RepeatVector Rescaling ResidualWrapper Reshape Resizing SeparableConv1D SeparableConv2D
    SeparableConvolution1D SeparableConvolution2D SimpleRNN SimpleRNNCell Softmax SpatialDropout1D SpatialDropout2D SpatialDropout3D
    SpectralNormalization StackedRNNCells StringLookup Subtract SyncBatchNormalization TextVectorization ThresholdedReLU
    TimeDistributed UnitNormalization UpSampling1D UpSampling2D UpSampling3D Wrapper ZeroPadding1D ZeroPadding2D ZeroPadding3D
    Custom>CustomScaleLayer CustomScaleLayer LayerScale Functional Model Sequential LinearModel WideDeepModel AdaptiveAveragePooling1D
    AdaptiveAveragePooling2D AdaptiveAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D AugMix
    AutoContrast CutMix Equalization GroupQueryAttention GroupedQueryAttention MaxNumBoundingBoxes MelSpectrogram MixUp Pipeline
    RMSNormalization RandAugment RandomColorDegeneration RandomColorJitter RandomElasticTransform RandomErasing RandomGaussianBlur
    RandomGrayscale RandomHue RandomInvert RandomPerspective RandomPosterization RandomSaturation RandomSharpness RandomShear
    STFTSpectrogram Solarization ContrastLimitedAdaptiveHistogramEqualization ReversibleEmbedding
""".split()
)

# Initializers, regularizers, constraints, losses, metrics, optimizers, policies.
OBJECTS = frozenset(
    """
    Constant ConstantV2 GlorotNormal GlorotNormalV2 GlorotUniform GlorotUniformV2 HeNormal HeNormalV2 HeUniform HeUniformV2 IdentityV2
    IdentityInitializer Initializer LecunNormal LecunNormalV2 LecunUniform LecunUniformV2 Ones OnesV2 Orthogonal OrthogonalInitializer
    OrthogonalV2 RandomNormal RandomNormalV2 RandomUniform RandomUniformV2 STFT TruncatedNormal TruncatedNormalV2 VarianceScaling
    VarianceScalingV2 Zeros ZerosV2 L1 L1L2 L2 OrthogonalRegularizer Regularizer Constraint MaxNorm MinMaxNorm NonNeg RadialConstraint
    UnitNorm BinaryCrossentropy BinaryFocalCrossentropy CTC CategoricalCrossentropy CategoricalFocalCrossentropy CategoricalHinge
    Circle CosineSimilarity Dice Hinge Huber KLDivergence LogCosh LossFunctionWrapper MeanAbsoluteError MeanAbsolutePercentageError
    MeanSquaredError MeanSquaredLogarithmicError Poisson SparseCategoricalCrossentropy SquaredHinge Tversky LossesContainer
    MetricsContainer CompileLoss CompileMetrics AUC Accuracy BinaryAccuracy BinaryIoU CategoricalAccuracy ConcordanceCorrelation
    F1Score FBetaScore FalseNegatives FalsePositives IoU LogCoshError Mean MeanIoU MeanMetricWrapper MeanRelativeError MeanTensor
    OneHotIoU OneHotMeanIoU PearsonCorrelation Precision PrecisionAtRecall R2Score Recall RecallAtPrecision RootMeanSquaredError
    SensitivityAtSpecificity SparseCategoricalAccuracy SparseTopKCategoricalAccuracy SpecificityAtSensitivity Sum
    TopKCategoricalAccuracy TrueNegatives TruePositives Adadelta Adafactor Adagrad Adam AdamW Adamax Ftrl Lamb Lion LossScaleOptimizer
    LossScaleOptimizerV3 Muon Nadam RMSprop SGD CosineDecay CosineDecayRestarts ExponentialDecay InverseTimeDecay
    PiecewiseConstantDecay PolynomialDecay DTypePolicy DTypePolicyMap FloatDTypePolicy Policy QuantizedDTypePolicy
    QuantizedFloat8DTypePolicy SeedGenerator DynamicLossScale CategoricalGeneralizedCrossEntropy STFTInitializer AbsMaxQuantizer
    Float8QuantizationConfig Int4DTypePolicy Int4QuantizationConfig Int8QuantizationConfig
""".split()
)

# Functions of Keras, by name.
FUNCTIONS = frozenset(
    """
    add average concatenate dot maximum minimum multiply subtract celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu
    hard_swish hard_tanh leaky_relu linear log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus
    softsign sparse_plus sparse_sigmoid sparsemax squareplus swish tanh tanh_shrink threshold constant glorot_normal glorot_uniform
    he_normal he_uniform identity lecun_normal lecun_uniform normal one ones orthogonal random_normal random_uniform truncated_normal
    uniform variance_scaling zero zeros l1 l1_l2 l2 orthogonal_regularizer max_norm min_max_norm non_neg radial_constraint unit_norm
    acc bce binary_accuracy binary_crossentropy binary_focal_crossentropy categorical_accuracy categorical_crossentropy
    categorical_focal_crossentropy categorical_hinge ce circle cosine_similarity crossentropy ctc dice hinge huber kl_divergence kld
    kullback_leibler_divergence log_cosh logcosh mae mape mean_absolute_error mean_absolute_percentage_error mean_squared_error
    mean_squared_logarithmic_error mse msle poisson sparse_categorical_accuracy sparse_categorical_crossentropy
    sparse_top_k_categorical_accuracy squared_hinge top_k_categorical_accuracy tversky categorical_generalized_cross_entropy
    concordance_correlation pearson_correlation stft
""".split()
)

# Functions of TensorFlow's API: {their namespace: names}. TF 1 has the same names behind compat.v1.
SYMBOLS = {
    "": frozenset(
        """
        abs accumulate_n acos acosh add add_n angle arg_max arg_min argmax argmin argsort as_string asin asinh assert_equal
        assert_greater assert_less assert_rank atan atan2 atanh batch_gather batch_to_space batch_to_space_nd betainc bincount
        bitcast boolean_mask broadcast_dynamic_shape broadcast_static_shape broadcast_to cast ceil check_numerics cholesky
        cholesky_solve clip_by_average_norm clip_by_global_norm clip_by_norm clip_by_value complex concat confusion_matrix conj
        constant convert_to_tensor cos cosh count_nonzero cross cumprod cumsum depth_to_space dequantize diag diag_part digamma
        dimension_value div div_no_nan divide dynamic_partition dynamic_stitch edit_distance eig eigvals einsum ensure_shape equal
        erf erfc exp expand_dims expm1 extract_image_patches extract_volume_patches eye fake_quant_with_min_max_args
        fake_quant_with_min_max_vars fake_quant_with_min_max_vars_per_channel fft fft2d fft3d fill fingerprint floor floor_div
        floordiv floormod gather gather_nd global_norm greater greater_equal guarantee_const histogram_fixed_width
        histogram_fixed_width_bins identity identity_n ifft ifft2d ifft3d igamma igammac imag invert_permutation is_finite is_inf
        is_nan is_non_decreasing is_strictly_increasing is_tensor lbeta less less_equal lgamma lin_space linspace log log1p
        log_sigmoid logical_and logical_not logical_or logical_xor matmul matrix_band_part matrix_determinant matrix_diag
        matrix_diag_part matrix_inverse matrix_set_diag matrix_solve matrix_solve_ls matrix_square_root matrix_transpose
        matrix_triangular_solve maximum meshgrid minimum mod multinomial multiply negative norm not_equal one_hot ones ones_like pad
        parallel_stack polygamma pow qr quantize quantize_v2 random_crop random_gamma random_index_shuffle random_normal
        random_poisson random_shuffle random_uniform range rank real realdiv reciprocal reduce_all reduce_any reduce_join
        reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_sum regex_replace repeat
        required_space_to_batch_paddings reshape reverse reverse_sequence reverse_v2 rint roll round rsqrt saturate_cast scalar_mul
        scatter_nd searchsorted segment_max segment_mean segment_min segment_prod segment_sum self_adjoint_eig self_adjoint_eigvals
        sequence_mask setdiff1d shape shape_n sigmoid sign sin sinh size slice sort space_to_batch space_to_batch_nd space_to_depth
        sparse_add sparse_concat sparse_reduce_max sparse_reduce_sum sparse_reorder sparse_reshape sparse_softmax
        sparse_tensor_dense_matmul sparse_tensor_to_dense sparse_to_dense split sqrt square squared_difference squeeze stack
        stop_gradient strided_slice string_join string_strip string_to_hash_bucket string_to_hash_bucket_fast
        string_to_hash_bucket_strong string_to_number substr subtract svd tan tanh tensor_scatter_add tensor_scatter_nd_add
        tensor_scatter_nd_max tensor_scatter_nd_min tensor_scatter_nd_sub tensor_scatter_nd_update tensor_scatter_sub
        tensor_scatter_update tensordot tile to_bfloat16 to_double to_float to_int32 to_int64 transpose truediv truncated_normal
        truncatediv truncatemod tuple unique unique_with_counts unravel_index unsorted_segment_max unsorted_segment_mean
        unsorted_segment_min unsorted_segment_prod unsorted_segment_sqrt_n unsorted_segment_sum unstack verify_tensor_all_finite
        where where_v2 zeros zeros_like zeta
    """.split()
    ),
    "__operators__": frozenset("add eq getitem ne ragged_getitem".split()),
    "bitwise": frozenset("bitwise_and bitwise_or bitwise_xor invert left_shift right_shift".split()),
    "debugging": frozenset(
        """
        assert_all_finite assert_equal assert_greater assert_greater_equal assert_integer assert_less assert_less_equal assert_near
        assert_negative assert_non_negative assert_non_positive assert_none_equal assert_positive assert_proper_iterable assert_rank
        assert_rank_at_least assert_rank_in assert_same_float_dtype assert_scalar assert_shapes assert_type check_numerics
        is_numeric_tensor
    """.split()
    ),
    "dtypes": frozenset("cast complex saturate_cast".split()),
    "experimental.numpy": frozenset(
        """
        abs absolute add all allclose amax amin angle any append arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax
        argmin argsort around array array_equal asanyarray asarray ascontiguousarray atleast_1d atleast_2d atleast_3d average
        bitwise_and bitwise_not bitwise_or bitwise_xor broadcast_arrays broadcast_to cbrt ceil clip compress concatenate conj
        conjugate copy cos cosh count_nonzero cross cumprod cumsum deg2rad diag diag_indices diagflat diagonal diff divide divmod
        dot dsplit dstack einsum empty empty_like equal exp exp2 expand_dims expm1 eye fabs finfo fix flatten flip fliplr flipud
        float_power floor floor_divide full full_like gcd geomspace greater greater_equal heaviside hsplit hstack hypot identity
        imag inner isclose iscomplex iscomplexobj isfinite isinf isnan isneginf isposinf isreal isrealobj isscalar issubdtype ix_
        kron lcm less less_equal linspace log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
        logspace matmul max maximum mean meshgrid min minimum mod moveaxis multiply nanmean nanprod nansum ndim negative nextafter
        nonzero not_equal ones ones_like outer pad polyval positive power prod promote_types ptp rad2deg ravel real reciprocal
        remainder repeat reshape result_type roll rot90 round select shape sign signbit sin sinc sinh size sort split sqrt square
        squeeze stack std subtract sum swapaxes take take_along_axis tan tanh tensordot tile trace transpose tri tril triu
        true_divide vander var vdot vsplit vstack where zeros zeros_like
    """.split()
    ),
    "experimental.numpy.random": frozenset("poisson rand randint randn random standard_normal uniform".split()),
    "image": frozenset(
        """
        adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_jpeg_quality adjust_saturation central_crop
        combined_non_max_suppression convert_image_dtype crop_and_resize crop_to_bounding_box decode_and_crop_jpeg decode_bmp
        decode_gif decode_image decode_jpeg decode_png draw_bounding_boxes encode_jpeg encode_png extract_glimpse
        extract_image_patches extract_jpeg_shape extract_patches flip_left_right flip_up_down generate_bounding_box_proposals
        grayscale_to_rgb hsv_to_rgb image_gradients is_jpeg non_max_suppression non_max_suppression_overlaps
        non_max_suppression_padded non_max_suppression_with_scores pad_to_bounding_box per_image_standardization psnr
        random_brightness random_contrast random_crop random_flip_left_right random_flip_up_down random_hue random_jpeg_quality
        random_saturation resize resize_area resize_bicubic resize_bilinear resize_image_with_crop_or_pad resize_image_with_pad
        resize_images resize_nearest_neighbor resize_with_crop_or_pad resize_with_pad rgb_to_grayscale rgb_to_hsv rgb_to_yiq
        rgb_to_yuv rot90 sample_distorted_bounding_box sobel_edges ssim ssim_multiscale stateless_random_brightness
        stateless_random_contrast stateless_random_crop stateless_random_flip_left_right stateless_random_flip_up_down
        stateless_random_hue stateless_random_jpeg_quality stateless_random_saturation stateless_sample_distorted_bounding_box
        total_variation transpose transpose_image yiq_to_rgb yuv_to_rgb
    """.split()
    ),
    "io": frozenset(
        """
        decode_and_crop_jpeg decode_base64 decode_bmp decode_csv decode_gif decode_image decode_jpeg decode_png decode_raw
        encode_base64 encode_jpeg encode_png extract_jpeg_shape is_jpeg parse_example parse_single_example parse_tensor
        serialize_tensor
    """.split()
    ),
    "keras.activations": frozenset(
        """
        elu exponential gelu hard_sigmoid linear mish relu selu sigmoid softmax softplus softsign swish tanh
    """.split()
    ),
    "keras.backend": frozenset(
        """
        abs all any arange argmax argmin batch_dot batch_flatten batch_normalization bias_add binary_crossentropy
        binary_focal_crossentropy cast cast_to_floatx categorical_crossentropy categorical_focal_crossentropy clip concatenate
        constant conv1d conv2d conv2d_transpose conv3d cos ctc_batch_cost ctc_decode ctc_label_dense_to_sparse cumprod cumsum
        depthwise_conv2d dot dropout elu equal exp expand_dims eye flatten gather greater greater_equal hard_sigmoid in_top_k
        l2_normalize less less_equal local_conv1d local_conv2d log max maximum mean min minimum not_equal one_hot ones ones_like
        permute_dimensions pool2d pool3d pow prod random_bernoulli random_binomial random_normal random_uniform relu repeat
        repeat_elements reshape resize_images resize_volumes reverse round separable_conv2d shape sigmoid sign sin softmax softplus
        softsign sparse_categorical_crossentropy spatial_2d_padding spatial_3d_padding sqrt square squeeze stack std stop_gradient
        sum tanh temporal_padding tile to_dense transpose truncated_normal var zeros zeros_like
    """.split()
    ),
    "keras.layers": frozenset("add average concatenate dot maximum minimum multiply subtract".split()),
    "linalg": frozenset(
        """
        adjoint band_part banded_triangular_solve cholesky cholesky_solve cross det diag diag_part eig eigh eigh_tridiagonal eigvals
        eigvalsh einsum expm eye global_norm inv l2_normalize logdet logm lstsq lu lu_matrix_inverse lu_reconstruct lu_solve matmul
        matrix_rank matrix_transpose matvec norm normalize pinv qr set_diag slogdet solve sqrtm svd tensor_diag tensor_diag_part
        tensordot trace triangular_solve tridiagonal_matmul tridiagonal_solve
    """.split()
    ),
    "math": frozenset(
        """
        abs accumulate_n acos acosh add add_n angle approx_max_k approx_min_k argmax argmin asin asinh atan atan2 atanh bessel_i0
        bessel_i0e bessel_i1 bessel_i1e betainc bincount ceil confusion_matrix conj cos cosh count_nonzero cumprod cumsum
        cumulative_logsumexp digamma divide divide_no_nan equal erf erfc erfcinv erfinv exp expm1 floor floordiv floormod greater
        greater_equal igamma igammac imag in_top_k invert_permutation is_finite is_inf is_nan is_non_decreasing
        is_strictly_increasing l2_normalize lbeta less less_equal lgamma log log1p log_sigmoid log_softmax logical_and logical_not
        logical_or logical_xor maximum minimum mod multiply multiply_no_nan ndtri negative nextafter not_equal polygamma polyval pow
        real reciprocal reciprocal_no_nan reduce_all reduce_any reduce_euclidean_norm reduce_logsumexp reduce_max reduce_mean
        reduce_min reduce_prod reduce_std reduce_sum reduce_variance rint round rsqrt scalar_mul segment_max segment_mean
        segment_min segment_prod segment_sum sigmoid sign sin sinh sobol_sample softmax softplus softsign sqrt square
        squared_difference subtract tan tanh top_k truediv unsorted_segment_max unsorted_segment_mean unsorted_segment_min
        unsorted_segment_prod unsorted_segment_sqrt_n unsorted_segment_sum xdivy xlog1py xlogy zero_fraction zeta
    """.split()
    ),
    "math.special": frozenset(
        """
        bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 bessel_k0 bessel_k0e bessel_k1 bessel_k1e bessel_y0 bessel_y1
        dawsn expint fresnel_cos fresnel_sin spence
    """.split()
    ),
    "nn": frozenset(
        """
        all_candidate_sampler approx_max_k approx_min_k atrous_conv2d atrous_conv2d_transpose avg_pool avg_pool1d avg_pool2d
        avg_pool3d avg_pool_v2 batch_norm_with_global_normalization batch_normalization bias_add collapse_repeated
        compute_accidental_hits compute_average_loss conv1d conv1d_transpose conv2d conv2d_backprop_filter conv2d_backprop_input
        conv2d_transpose conv3d conv3d_transpose conv_transpose convolution crelu ctc_beam_search_decoder ctc_beam_search_decoder_v2
        ctc_greedy_decoder ctc_loss ctc_loss_v2 ctc_unique_labels depth_to_space depthwise_conv2d depthwise_conv2d_backprop_filter
        depthwise_conv2d_backprop_input depthwise_conv2d_native dilation2d dropout elu embedding_lookup embedding_lookup_sparse
        erosion2d fractional_avg_pool fractional_max_pool fused_batch_norm gelu in_top_k isotonic_regression l2_loss l2_normalize
        leaky_relu learned_unigram_candidate_sampler local_response_normalization log_poisson_loss log_softmax lrn max_pool
        max_pool1d max_pool2d max_pool3d max_pool_v2 max_pool_with_argmax moments nce_loss normalize_moments pool relu relu6
        relu_layer safe_embedding_lookup_sparse sampled_softmax_loss scale_regularization_loss selu separable_conv2d sigmoid
        sigmoid_cross_entropy_with_logits silu softmax softmax_cross_entropy_with_logits softmax_cross_entropy_with_logits_v2
        softplus softsign space_to_batch space_to_depth sparse_softmax_cross_entropy_with_logits sufficient_statistics swish tanh
        top_k weighted_cross_entropy_with_logits weighted_moments xw_plus_b zero_fraction
    """.split()
    ),
    "nn.experimental": frozenset("general_dropout stateless_dropout".split()),
    "quantization": frozenset(
        """
        dequantize fake_quant_with_min_max_args fake_quant_with_min_max_args_gradient fake_quant_with_min_max_vars
        fake_quant_with_min_max_vars_gradient fake_quant_with_min_max_vars_per_channel
        fake_quant_with_min_max_vars_per_channel_gradient quantize quantize_and_dequantize quantize_and_dequantize_v2
        quantized_concat
    """.split()
    ),
    "ragged": frozenset(
        """
        boolean_mask constant cross cross_hashed range row_splits_to_segment_ids segment_ids_to_row_splits stack
        stack_dynamic_partitions
    """.split()
    ),
    "random": frozenset(
        """
        all_candidate_sampler categorical fold_in gamma learned_unigram_candidate_sampler log_uniform_candidate_sampler normal
        poisson shuffle split stateless_binomial stateless_categorical stateless_gamma stateless_normal
        stateless_parameterized_truncated_normal stateless_poisson stateless_truncated_normal stateless_uniform truncated_normal
        uniform uniform_candidate_sampler
    """.split()
    ),
    "random.experimental": frozenset("index_shuffle stateless_fold_in stateless_shuffle stateless_split".split()),
    "sets": frozenset("difference intersection size union".split()),
    "signal": frozenset(
        """
        dct fft fft2d fft3d fftshift frame hamming_window hann_window idct ifft ifft2d ifft3d ifftshift inverse_mdct inverse_stft
        inverse_stft_window_fn irfft irfft2d irfft3d kaiser_bessel_derived_window kaiser_window linear_to_mel_weight_matrix mdct
        mfccs_from_log_mel_spectrograms overlap_and_add rfft rfft2d rfft3d stft vorbis_window
    """.split()
    ),
    "sparse": frozenset(
        """
        add bincount concat cross cross_hashed expand_dims eye fill_empty_rows from_dense mask maximum minimum reduce_max reduce_sum
        reorder reset_shape reshape retain segment_mean segment_sqrt_n segment_sum slice softmax sparse_dense_matmul split to_dense
        to_indicator transpose
    """.split()
    ),
    "strings": frozenset(
        """
        as_string bytes_split format join length lower ngrams reduce_join regex_full_match regex_replace split strip substr
        to_hash_bucket to_hash_bucket_fast to_hash_bucket_strong to_number unicode_decode unicode_decode_with_offsets unicode_encode
        unicode_script unicode_split unicode_split_with_offsets unicode_transcode unsorted_segment_join upper
    """.split()
    ),
}

# Ops of the graph (TensorFlowOpLayer, raw_ops).
OPS = frozenset(
    """
    Abs AccumulateNV2 Acos Acosh Add AddN AddV2 AdjustContrast AdjustContrastv2 AdjustHue AdjustSaturation All Angle Any
    ApproximateEqual ArgMax ArgMin AsString Asin Asinh Atan Atan2 Atanh AvgPool AvgPool3D BandedTriangularSolve BatchMatMul
    BatchMatMulV2 BatchMatMulV3 BatchNormWithGlobalNormalization BatchToSpace BatchToSpaceND BesselI0 BesselI0e BesselI1 BesselI1e
    BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Betainc BiasAdd BiasAddV1 Bincount Bitcast BitwiseAnd
    BitwiseOr BitwiseXor BroadcastArgs BroadcastTo Bucketize Cast Ceil Cholesky ClipByValue CombinedNonMaxSuppression Complex
    ComplexAbs Concat ConcatOffset ConcatV2 Conj ConjugateTranspose Const Conv2D Conv3D Cos Cosh CropAndResize Cross Cumprod Cumsum
    CumulativeLogsumexp DataFormatDimMap DataFormatVecPermute Dawsn DecodeAndCropJpeg DecodeBmp DecodeGif DecodeImage DecodeJpeg
    DecodePng DenseBincount DepthToSpace DepthwiseConv2dNative Dequantize Diag DiagPart Digamma Dilation2D Div DivNoNan
    DrawBoundingBoxes DrawBoundingBoxesV2 EditDistance Eig Einsum Elu EncodeJpeg EncodeJpegVariableQuality EncodePng EnsureShape Equal
    Erf Erfc Erfinv EuclideanNorm Exp ExpandDims Expint Expm1 ExtractGlimpse ExtractGlimpseV2 ExtractImagePatches ExtractJpegShape
    ExtractVolumePatches FFT FFT2D FFT3D FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel Fill
    Fingerprint Floor FloorDiv FloorMod FractionalAvgPool FractionalMaxPool FresnelCos FresnelSin FusedBatchNorm FusedBatchNormV2
    FusedBatchNormV3 FusedPadConv2D FusedResizeAndPadConv2D Gather GatherNd GatherV2 GenerateBoundingBoxProposals Greater GreaterEqual
    HSVToRGB HistogramFixedWidth IFFT IFFT2D IFFT3D IRFFT IRFFT2D IRFFT3D Identity IdentityN Igamma Igammac Imag
    ImageProjectiveTransformV2 ImageProjectiveTransformV3 InTopK InTopKV2 Inv Invert InvertPermutation IsFinite IsInf IsNan
    IsotonicRegression L2Loss LRN LeakyRelu LeftShift Less LessEqual Lgamma LinSpace ListDiff Log Log1p LogMatrixDeterminant
    LogSoftmax LogicalAnd LogicalNot LogicalOr LowerBound Lu MatMul MatrixBandPart MatrixDeterminant MatrixDiag MatrixDiagPart
    MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixExponential MatrixInverse MatrixLogarithm MatrixSetDiag
    MatrixSetDiagV2 MatrixSetDiagV3 MatrixSolve MatrixSolveLs MatrixSquareRoot MatrixTriangularSolve Max MaxPool MaxPool3D MaxPoolV2
    MaxPoolWithArgmax Maximum Mean Min Minimum MirrorPad Mod Mul MulNoNan Ndtri Neg NextAfter NonMaxSuppression NonMaxSuppressionV2
    NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps NotEqual NthElement OneHot OnesLike Pack
    Pad PadV2 Polygamma PopulationCount Pow Prod Qr QuantizeAndDequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3
    QuantizeAndDequantizeV4 QuantizeV2 RFFT RFFT2D RFFT3D RGBToHSV RaggedBincount Range Rank Real RealDiv Reciprocal ReduceJoin
    RegexFullMatch RegexReplace Relu Relu6 Reshape ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor Reverse
    ReverseSequence ReverseV2 RightShift Rint Round Rsqrt ScaleAndTranslate ScatterNd SegmentMax SegmentMaxV2 SegmentMean SegmentMin
    SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum SegmentSumV2 Select SelectV2 SelfAdjointEig SelfAdjointEigV2 Selu Shape ShapeN
    Sigmoid Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyWithLogits Softplus Softsign SpaceToBatch SpaceToBatchND SpaceToDepth
    SparseBincount SparseMatMul SparseSegmentMean SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
    SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumWithNumSegments SparseSoftmaxCrossEntropyWithLogits Spence
    Split SplitV Sqrt Square SquaredDifference Squeeze StatelessSampleDistortedBoundingBox StaticRegexFullMatch StaticRegexReplace
    StridedSlice StringFormat StringJoin StringLength StringLower StringNGrams StringSplit StringSplitV2 StringStrip
    StringToHashBucket StringToHashBucketFast StringToHashBucketStrong StringUpper Sub Substr Sum Svd Tan Tanh TensorScatterAdd
    TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate TensorStridedSliceUpdate Tile TopK TopKV2 Transpose
    TridiagonalMatMul TridiagonalSolve TruncateDiv TruncateMod UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript
    UnicodeTranscode Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex UnsortedSegmentMax UnsortedSegmentMin
    UnsortedSegmentProd UnsortedSegmentSum UpperBound Where Xdivy Xlog1py Xlogy ZerosLike Zeta
""".split()
)

# Of tf.RaggedTensor and tf.SparseTensor: what makes one, and what is asked of one.
RAGGED_CLASSES = frozenset("RaggedTensor SparseTensor sparse.SparseTensor".split())
RAGGED_MAKERS = frozenset(
    """
    from_value_rowids from_row_splits from_row_lengths from_row_starts from_row_limits from_uniform_row_length from_nested_value_rowids
    from_nested_row_splits from_nested_row_lengths from_tensor from_sparse
""".split()
)
RAGGED_MEMBERS = frozenset(
    """
    values flat_values row_splits nested_row_splits value_rowids nested_value_rowids nrows row_starts row_limits row_lengths
    nested_row_lengths bounding_shape with_values with_flat_values with_row_splits_dtype merge_dims to_tensor to_sparse indices dense_shape
""".split()
)
TYPE_SPECS = frozenset("TensorSpec RaggedTensorSpec SparseTensorSpec".split())
# Values of their own kind, which stand where an object could.
VALUES = frozenset(
    """
    __tensor__ __numpy__ __bytes__ __tuple__ __ellipsis__ __slice__ __complex__ __keras_tensor__ __keras_dtype__ __tf_dtype__ TensorShape
    CompositeTensor
""".split()
)
