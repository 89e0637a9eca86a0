# Stands for python:VERSION-slim-bookworm: Debian, a Python of the machine in /usr/local, its own pip, and no compiler.
FROM scratch
ADD debian.tar /
ADD python.tar /usr/local/
ARG VERSION
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8
RUN ldconfig \
 && ln -s "python$VERSION" /usr/local/bin/python3 && ln -s python3 /usr/local/bin/python \
 && python -c 'import bz2, ctypes, lzma, readline, sqlite3, ssl, uuid, zlib' \
 && python -m ensurepip --default-pip
CMD ["python3"]
