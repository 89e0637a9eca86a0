"""TF-TRT: conversion, calibration, and signatures put around a model."""
