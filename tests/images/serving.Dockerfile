# Stands for tensorflow/serving:TENSORFLOW-gpu: TensorFlow, CUDA and cuDNN of the wheels, the settings of its Dockerfile.gpu, and this
# project's development server under the name of the real one.
ARG BASE
FROM ${BASE}
ARG TENSORFLOW
# TensorRT of the stock image: packages of 8.4.3 to be purged, or 8.6.1's file. The wheel's must not stand in for what the image brings.
RUN libraries=/usr/lib/x86_64-linux-gnu; \
    case "$TENSORFLOW" in \
    2.14.1) pip uninstall --yes tensorrt && rm -r /opt/nvrtc && \
      for name in libnvinfer libnvinfer-plugin; do \
        package="/tmp/$name" && mkdir -p "$package/DEBIAN" "$package$libraries" && echo 8.4.3 > "$package$libraries/$name.so.8" && \
        printf 'Package: %s8\nVersion: 8.4.3-1+cuda11.6\nArchitecture: amd64\nMaintainer: a <a@b.c>\nDescription: none\n' "$name" \
          > "$package/DEBIAN/control" && \
        dpkg-deb --build "$package" "$package.deb" && dpkg --install "$package.deb" && rm -r "$package" "$package.deb" || exit 1; \
      done ;; \
    *) ln -s "$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/tensorrt_libs/libnvinfer.so.8" \
         "$libraries/libnvinfer.so.8.6.1" ;; \
    esac
# CUDA's libraries are found as in the stock image, which has them in the system's folders.
RUN python -c 'import glob, sysconfig; print(*glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib"), sep="\n")' \
      > /etc/ld.so.conf.d/cuda.conf \
 && ldconfig
COPY --chmod=755 tensorflow_model_server /usr/bin/
ENV LD_LIBRARY_PATH=/usr/local/cuda/extras/CUPTI/lib64:/usr/local/nvidia/lib:/usr/local/nvidia/lib64 \
    MODEL_BASE_PATH=/models \
    MODEL_NAME=model
RUN mkdir -p /models
WORKDIR /
EXPOSE 8500 8501
ENTRYPOINT ["/usr/bin/tf_serving_entrypoint.sh"]
